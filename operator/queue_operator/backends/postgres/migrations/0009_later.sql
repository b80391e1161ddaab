-- outside a transaction
-- What waits for a time, by lane: what is past it lies before now, however much of it is dead. The
-- condition is written as no other statement says it, and whoever says it so has no other index.
CREATE INDEX CONCURRENTLY ready_later ON queue_operator.ready (lane_id, eligible_at) INCLUDE (state)
    WHERE NOT coalesce(due, true) AND NOT blocked;
