-- Notes which snapshot the roll-ups are as of now. Parameters: upto, above_seq, closed_until.
-- Index: none; one row, locked by `roll_up_lock.sql` before.
UPDATE roll_up_progress SET snapshot = %(upto)s::pg_snapshot, xid = pg_current_xact_id(),
    above_seq = %(above_seq)s, closed_until = %(closed_until)s
