-- needs: 0010_history
-- What has ended is found by its namespace: to be cleaned up beside others that have more of it, and
-- to be searched in the order of completion.
ALTER TABLE final ADD COLUMN namespace_id integer;
UPDATE final SET namespace_id = lane.namespace_id FROM lane WHERE lane.id = final.lane_id;
ALTER TABLE final ALTER COLUMN namespace_id SET NOT NULL;

-- Up to which number the event log has been pruned: the newest row. Where it begins cannot be asked
-- of the log itself, as long as a snapshot keeps what was deleted.
CREATE TABLE event_pruned (
    seq bigint PRIMARY KEY
);
INSERT INTO event_pruned VALUES (0);
