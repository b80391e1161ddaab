-- How many jobs of a namespace and type are eligible and come before a place in the order of claims,
-- counted up to a bound. Parameters: namespace, type, now, place, number, bound. Index: job_claim,
-- a range, which has all that is asked of a job.
SELECT count(*) FROM (
    SELECT 1 FROM job
    WHERE claimable = 1 AND namespace = :namespace AND type = :type AND eligible_at <= :now
      AND (place, number) < (:place, :number)
    LIMIT :bound)
