-- The changes not yet added to the counts. Parameters: copies.
UPDATE count_delta SET jobs = jobs * %(copies)s, retries = retries * %(copies)s
