-- Numbers and ids of all jobs of some lanes. Parameters: lanes (int[]). Index: job_by_lane.
SELECT job_no, id FROM job WHERE lane_id = ANY (%(lanes)s::int[])
