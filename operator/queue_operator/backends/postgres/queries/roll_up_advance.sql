-- Notes which snapshot the roll-ups are as of now, and removes the note before it.
-- Parameters: version, that of the one before; upto, above_seq, closed_until.
-- Index: roll_up_progress_pkey. Locks: the row that goes, which `roll_up_lock.sql` has locked.
WITH gone AS (
    DELETE FROM roll_up_progress WHERE version = %(version)s
)
INSERT INTO roll_up_progress (version, snapshot, above_seq, closed_until)
VALUES (%(version)s + 1, %(upto)s::pg_snapshot, %(above_seq)s, %(closed_until)s)
