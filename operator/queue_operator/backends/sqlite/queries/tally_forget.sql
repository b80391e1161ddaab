-- Forgets old tallies. Parameters: span_s, and oldest: since when they are kept.
-- Index: tally_by_age.
DELETE FROM tally WHERE span_s = :span_s AND begins_at < :oldest
