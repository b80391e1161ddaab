-- Part of a statement whose loss in a crash of the server does no harm: it does not wait until it is on
-- disk. For this transaction alone, which is all that holds behind a pooler.
set_config('synchronous_commit', 'off', true)
