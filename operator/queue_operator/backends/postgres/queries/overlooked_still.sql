-- Of some jobs those that wait: number, lane, order time, and whether they are due.
-- Parameters: job_nos. Index: ready_pkey. Locks: none.
SELECT job_no, lane_id, order_time, due FROM ready
WHERE job_no = ANY (%(job_nos)s::bigint[])
