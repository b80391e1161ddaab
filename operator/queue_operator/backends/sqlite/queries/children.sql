-- Jobs that wait for a parent. Parameters: parent. Index: the key of edge.
SELECT job.* FROM edge JOIN job ON job.number = edge.child
WHERE edge.parent = :parent AND job.state IN ({{INITIAL_PENDING}}) ORDER BY job.number
