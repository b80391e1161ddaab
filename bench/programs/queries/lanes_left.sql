-- How many lanes there are, with jobs or without.
SELECT count(*) FROM queue_operator.lane
