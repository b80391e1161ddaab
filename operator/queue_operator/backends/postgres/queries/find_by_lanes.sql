-- Numbers and ids of all jobs of some lanes. Parameters: lanes (int[]). Index: job_by_lane.
-- Traps: the index is made for what says `lane_id > 0`, so that nothing else walks it.
SELECT job_no, id FROM job WHERE lane_id = ANY (%(lanes)s::int[]) AND lane_id > 0
