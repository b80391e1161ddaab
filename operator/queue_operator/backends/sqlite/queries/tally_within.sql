-- The tallies of a namespace in a range of time. Parameters: namespace, span_s, since and until
-- (exclusive). Index: the primary key.
SELECT type, priority, record FROM tally
WHERE namespace = :namespace AND span_s = :span_s AND begins_at >= :since AND begins_at < :until
