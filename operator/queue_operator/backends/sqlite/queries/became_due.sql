-- Whether the time of some job came after `since` and up to `now`. Index: job_due, a range.
SELECT EXISTS (
    SELECT 1 FROM job WHERE claimable = 1 AND eligible_at > :since AND eligible_at <= :now
)
