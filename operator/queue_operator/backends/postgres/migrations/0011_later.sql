-- outside a transaction
-- What waits for a time, by lane: what is past it lies before now, however much of it is dead. The
-- condition is written as no other statement says it, and whoever says it so has no other index.
CREATE INDEX CONCURRENTLY ready_later ON queue_operator.ready (lane_id, eligible_at) INCLUDE (state)
    WHERE NOT coalesce(due, true) AND NOT blocked;

-- For lanes that nobody uses any more. The sum keeps look-ups of lanes by their number from this one.
CREATE INDEX CONCURRENTLY lane_by_use ON queue_operator.lane (used_at, (id + 0));
CREATE INDEX CONCURRENTLY lane_retired ON queue_operator.lane (id) WHERE retired IS NOT NULL;

-- What ended is cleaned up by namespace.
CREATE INDEX CONCURRENTLY final_done ON queue_operator.final (namespace_id, finalized_at)
    WHERE state IN ({{completed}});
DROP INDEX CONCURRENTLY IF EXISTS queue_operator.final_completed;
