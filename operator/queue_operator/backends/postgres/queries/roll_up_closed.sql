-- Part of others: until when longer spans are summed up. At the beginning nothing is; where an older
-- release wrote them all the time, that goes on until the day is over.
-- Index: roll_up_by_age, where nobody noted it yet.
coalesce(closed_until, CASE
    WHEN EXISTS (SELECT FROM roll_up WHERE span_s > 60) THEN date_trunc('day', now()) + interval '1 day'
    ELSE 'epoch'
END)
