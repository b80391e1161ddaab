-- Whether an attempt's end was told without its token: its holder's own word is no repeat of that.
-- NULL: with the token, and in all rows that an older release wrote.
ALTER TABLE attempt ADD COLUMN unfenced boolean;
