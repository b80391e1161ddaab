-- Jobs that hold a slot. No parameters. Index: job_leased, whole.
SELECT * FROM job WHERE state IN ({{slot_holding}}) ORDER BY number
