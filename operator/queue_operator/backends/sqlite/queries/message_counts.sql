-- How many messages there are, by namespace and state. Index: message_listed alone.
SELECT namespace, state, count(*) FROM message GROUP BY namespace, state
