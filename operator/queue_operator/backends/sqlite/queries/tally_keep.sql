-- Stores a tally in place of what it was. Parameters: its key and the record.
INSERT OR REPLACE INTO tally (namespace, span_s, begins_at, type, priority, record)
VALUES (?, ?, ?, ?, ?, ?)
