-- Numbers and ids of all jobs of some lanes, in order of number. Parameters: lanes (int[]).
-- Index: job_by_lane. Locks: none.
-- Traps: read through a cursor, because there may be any number of them. The index is made for what
--   says `lane_id > 0`, so that nothing else walks it. Without the OFFSET the order would rather be
--   taken from the primary key, by walking the jobs of all lanes.
SELECT job_no, id FROM (
    SELECT job_no, id FROM job WHERE lane_id = ANY (%(lanes)s::int[]) AND lane_id > 0 OFFSET 0
) AS theirs
ORDER BY job_no
