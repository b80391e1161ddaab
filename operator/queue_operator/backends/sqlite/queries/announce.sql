-- Says that something of a topic changed. Parameters: topic.
INSERT INTO signal VALUES (:topic, 1)
ON CONFLICT (topic) DO UPDATE SET version = version + 1
