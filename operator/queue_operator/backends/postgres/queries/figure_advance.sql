-- Notes which snapshot the counters are as of now, and removes the note before it; gives our
-- transaction, by which is found out later whether it was committed.
-- Parameters: version, that of the one before; upto, above_seq.
-- Index: figure_progress_pkey. Locks: the row that goes, which `figure_lock.sql` has locked.
WITH gone AS (
    DELETE FROM figure_progress WHERE version = %(version)s
)
INSERT INTO figure_progress (version, snapshot, above_seq)
VALUES (%(version)s + 1, %(upto)s::pg_snapshot, %(above_seq)s)
RETURNING xid::text
