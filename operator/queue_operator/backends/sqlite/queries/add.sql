-- A new job, under the number it was given. Parameters: its columns by name.
INSERT INTO job (number, namespace, id, type, state, place, eligible_at, claimable, used_up,
                 finalized_at, retries, record, payload, result, inherited)
VALUES (:number, :namespace, :id, :type, :state, :place, :eligible_at, :claimable, :used_up,
        :finalized_at, :retries, :record, :payload, :result, :inherited)
