-- Passes over some numbers of lanes: where the sequence began anew a block of them may be in use.
-- Parameters: numbers (int), how many. Index, locks: none.
SELECT count(nextval('lane_id_seq')) FROM generate_series(1, %(numbers)s)
