-- Writes what changed of a job. Parameters: its columns by name.
UPDATE job
SET state = :state, place = :place, eligible_at = :eligible_at, claimable = :claimable,
    used_up = :used_up, finalized_at = :finalized_at, retries = :retries, record = :record,
    result = :result, inherited = :inherited
WHERE number = :number
