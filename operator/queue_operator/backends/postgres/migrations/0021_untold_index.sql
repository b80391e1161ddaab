-- outside a transaction
-- Empty, but for the length of an upgrade.
CREATE INDEX CONCURRENTLY job_event_untold ON queue_operator.job_event (seq)
    WHERE untold AND to_state IN ({{terminal}});
