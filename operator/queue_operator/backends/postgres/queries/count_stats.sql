-- (state, jobs, retries) of the jobs of a namespace that carry all tags.
-- Parameters: namespace text, tags text[]; no tags means all jobs.
-- Tags are a property of the lane. Counts: from the namespace's lanes (first column of lane's
-- unique index) into lane_count's primary key. Changes not yet folded: all of them, each into
-- lane's primary key; the other way round would read them once per lane.
SELECT state, sum(jobs)::bigint, sum(retries)::bigint
FROM (
    SELECT lane_count.state, lane_count.jobs, lane_count.retries
    FROM namespace
    JOIN lane ON lane.namespace_id = namespace.id
    JOIN lane_count ON lane_count.lane_id = lane.id
    WHERE namespace.name = %(namespace)s AND lane.tags @> %(tags)s::text[]
    UNION ALL
    SELECT count_delta.state, count_delta.jobs, count_delta.retries
    FROM count_delta
    JOIN lane ON lane.id = count_delta.lane_id
    JOIN namespace ON namespace.id = lane.namespace_id
    WHERE namespace.name = %(namespace)s AND lane.tags @> %(tags)s::text[]
) AS counted
GROUP BY state
