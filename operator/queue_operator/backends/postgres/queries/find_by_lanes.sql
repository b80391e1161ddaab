-- Numbers and ids of all jobs of some lanes, in order of number. Parameters: lanes (int[]).
-- Index: job_by_lane. Locks: none.
-- Traps: read through a cursor, because there may be any number of them, and a cursor is planned for
--   its first rows: without OFFSET 0 all jobs there are would be walked in order of number, to save
--   sorting those of the lanes. The index is made for what says `lane_id > 0`, so that nothing else
--   walks it.
SELECT job_no, id FROM (
    SELECT job_no, id FROM job WHERE lane_id = ANY (%(lanes)s::int[]) AND lane_id > 0 OFFSET 0
) of_lanes
ORDER BY job_no
