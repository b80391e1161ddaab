-- Takes the turn to roll up; gives the snapshot that the roll-ups are as of, and whether it is
-- one of this database: not so in a copy that was restored from a dump, in which the row was not
-- written by the transaction that it names; and above which number rows of the log are not of an
-- earlier database; and until when longer spans are summed up. No parameters. In its other form, without
-- {{or_skip}}, it waits for its turn.
-- Index: none; one row. Locks: it.
SELECT snapshot::text, xmin = xid::xid, above_seq, {{closed}}
FROM roll_up_progress FOR UPDATE {{or_skip}}
