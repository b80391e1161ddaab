-- What is not to be claimed: the jobs of a namespace, or only those of one type ('': all).
CREATE TABLE pause (
    namespace TEXT    NOT NULL,
    type      TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    paused_by TEXT    NOT NULL,
    since     INTEGER NOT NULL,
    PRIMARY KEY (namespace, type)
) WITHOUT ROWID;
