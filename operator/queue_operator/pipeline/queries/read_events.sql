-- What Spark reads, by JDBC. Instants travel as microseconds since 1970, because both
-- Spark's and the driver's timestamp types depend on the zone of the session or the JVM.
SELECT
    seq,
    round(extract(epoch FROM at) * 1000000)::bigint AS at_us,
    schema_version,
    event,
    from_state,
    to_state,
    job_nos,
    attempts,
    wait_us,
    run_us,
    workers,
    failed::text AS failed,
    ids,
    correlations,
    lane_of,
    lanes::text AS lanes
FROM queue_operator.job_event
WHERE {window}
