-- Numbers of jobs. Parameters: names (JSON array of [namespace, id]). Index: the unique
-- (namespace, id), which has them. Trap: CROSS JOIN keeps the planner from starting at the jobs.
SELECT job.number FROM json_each(:names) AS asked
CROSS JOIN job ON job.namespace = json_extract(asked.value, '$[0]')
              AND job.id = json_extract(asked.value, '$[1]')
