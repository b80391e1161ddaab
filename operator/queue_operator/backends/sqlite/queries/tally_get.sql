-- One tally. Parameters: its key. Index: the primary key.
SELECT record FROM tally
WHERE namespace = :namespace AND span_s = :span_s AND begins_at = :begins_us AND type = :type
  AND priority = :priority
