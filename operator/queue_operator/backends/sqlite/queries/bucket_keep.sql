-- Stores how full a bucket is. Parameters: name, tokens, filled_at. Index: the primary key.
INSERT OR REPLACE INTO token_bucket (name, tokens, filled_at) VALUES (?, ?, ?)
