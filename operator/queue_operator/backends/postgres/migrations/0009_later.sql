-- outside a transaction
-- What waits for a time, by lane: what is past it lies before now, however much of it is dead. The
-- condition on the lane always holds, and keeps all other statements from this index.
CREATE INDEX CONCURRENTLY ready_later ON queue_operator.ready (lane_id, eligible_at) INCLUDE (state)
    WHERE NOT due AND NOT blocked AND lane_id > 0;
