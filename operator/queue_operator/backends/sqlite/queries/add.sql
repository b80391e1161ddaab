-- A new job, under the number it was given. Parameters: its columns by name.
INSERT INTO job (
    number, namespace, id, type, state, priority, place, created_at, updated_at, eligible_at,
    finalized_at, claimable, used_up, waiting, category, code, failed_at, retries, record, payload,
    result, inherited, checkpoint
) VALUES (
    :number, :namespace, :id, :type, :state, :priority, :place, :created_at, :updated_at,
    :eligible_at, :finalized_at, :claimable, :used_up, :waiting, :category, :code, :failed_at,
    :retries, :record, :payload, :result, :inherited, :checkpoint
)
