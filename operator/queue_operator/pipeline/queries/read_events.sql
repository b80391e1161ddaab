-- What Spark reads, by JDBC. Instants travel as microseconds since 1970, because both
-- Spark's and the driver's timestamp types depend on the zone of the session or the JVM.
SELECT
    seq,
    round(extract(epoch FROM at) * 1000000)::bigint AS at_us,
    schema_version,
    event,
    job_nos,
    from_states,
    to_states,
    attempts,
    wait_us,
    run_us,
    workers,
    submitted::text AS submitted,
    failed::text AS failed
FROM queue_operator.job_event
WHERE {window}
