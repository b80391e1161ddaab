-- Jobs that hold a slot. Index: job_leased.
SELECT * FROM job WHERE state IN ({{slot_holding}}) ORDER BY number
