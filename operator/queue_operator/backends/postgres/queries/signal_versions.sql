-- The version of every topic. No parameters, no index: a handful of rows on one page.
SELECT topic, version FROM signal
