-- Takes the turn to count, where it is the holder's to show the figures: the version of the note that
-- says how far the counters are, the snapshot that they are as of, whether it is one of this database
-- (not so in a copy that was restored from a dump, in which the row was not written by the transaction
-- that it names), and above which number rows of the log are not of an earlier database.
-- Parameters: holder.
-- Index: figure_progress_pkey and figure_leader_pkey, from their ends. Locks: the newest row.
SELECT version, snapshot::text, xmin = xid::xid, above_seq
FROM figure_progress
WHERE version = (SELECT version FROM figure_progress ORDER BY version DESC LIMIT 1)
  AND (SELECT holder = %(holder)s AND until >= now()
       FROM figure_leader ORDER BY version DESC LIMIT 1)
FOR UPDATE SKIP LOCKED
