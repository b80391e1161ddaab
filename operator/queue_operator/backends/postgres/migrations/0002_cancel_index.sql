-- Only cancels look for the leases of an assignee often, and they are rare: every claim paid
-- for the index on all of them. A worker given up by hand is found by reading the leases.
DROP INDEX lease_by_assignee;
CREATE INDEX lease_cancelling ON lease (assignee_id) WHERE state IN ({{CANCELLING}});
