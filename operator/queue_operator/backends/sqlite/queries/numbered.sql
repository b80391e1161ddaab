-- Jobs by their numbers. Parameters: numbers (JSON array). Index: the key of job.
SELECT * FROM job WHERE number IN (SELECT value FROM json_each(:numbers)) ORDER BY number
