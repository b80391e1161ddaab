-- Takes the turn to roll up; gives the version of the note that says how far the roll-ups are, the
-- snapshot that they are as of, and whether it is one of this database: not so in a copy that was
-- restored from a dump, in which the row was not written by the transaction that it names; and
-- above which number rows of the log are not of an earlier database; and until when longer spans
-- are summed up. No parameters. In its other form, without {{or_skip}}, it waits for its turn.
-- Index: roll_up_progress_pkey, from its end. Locks: the newest row.
-- Trap: no row where another has it, or has removed it since our snapshot; who waited asks again.
SELECT version, snapshot::text, xmin = xid::xid, above_seq, {{closed}}
FROM roll_up_progress
WHERE version = (SELECT version FROM roll_up_progress ORDER BY version DESC LIMIT 1)
FOR UPDATE {{or_skip}}
