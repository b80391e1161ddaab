-- One message. Parameters: number. Index: the primary key.
SELECT number, held, record FROM message WHERE number = :number
