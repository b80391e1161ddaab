-- Tells the event log of this file from those of others; a copy of the file has the same.
CREATE TABLE event_log (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    id       TEXT    NOT NULL
);
INSERT INTO event_log VALUES (1, lower(hex(randomblob(4))));
