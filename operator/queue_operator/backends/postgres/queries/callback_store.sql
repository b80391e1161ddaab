-- Notes who is to be told of the ends of some new jobs. Parameters, aligned by position: job_nos,
-- receivers (bigint[]), urls, namespaces, ids, types (text[]). Index: none. Locks: the new rows.
INSERT INTO callback (job_no, receiver, url, namespace, job_id, type)
SELECT * FROM unnest(%(job_nos)s::bigint[], %(receivers)s::bigint[], %(urls)s::text[],
                     %(namespaces)s::text[], %(ids)s::text[], %(types)s::text[])
