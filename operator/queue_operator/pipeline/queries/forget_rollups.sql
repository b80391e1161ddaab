-- All of some hours, which are stored anew by the same transaction. Parameter: hours (timestamptz[]).
DELETE FROM queue_operator.rollup_hour WHERE hour = ANY (%(hours)s::timestamptz[])
