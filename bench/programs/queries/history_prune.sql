-- Old rows of the log, as `docs/guides/database.md` says to remove them. Parameters: days.
DELETE FROM queue_operator.job_event WHERE at < now() - make_interval(days => %(days)s)
