-- Messages whose time has come, of each receiver the first, in order of their numbers.
-- Parameters: now, per_receiver. Index: message_due.
SELECT number, held, record
FROM (SELECT number, held, record,
             row_number() OVER (PARTITION BY receiver ORDER BY number) AS place
      FROM message WHERE next_at <= :now)
WHERE place <= :per_receiver
ORDER BY number
