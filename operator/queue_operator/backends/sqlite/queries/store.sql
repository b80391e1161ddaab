-- Writes what may change of a job. Parameters: its columns by name. Index: the number.
UPDATE job
SET state = :state, priority = :priority, place = :place, updated_at = :updated_at,
    eligible_at = :eligible_at, finalized_at = :finalized_at, claimable = :claimable,
    used_up = :used_up, waiting = :waiting, category = :category, code = :code,
    failed_at = :failed_at, retries = :retries, record = :record, result = :result,
    inherited = :inherited, checkpoint = :checkpoint
WHERE number = :number
