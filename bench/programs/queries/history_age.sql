-- Makes all of the log older. Parameters: days.
UPDATE queue_operator.job_event SET at = at - make_interval(days => %(days)s)
