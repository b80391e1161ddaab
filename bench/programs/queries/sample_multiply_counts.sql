-- Parameters: copies.
UPDATE lane_count SET jobs = jobs * %(copies)s, retries = retries * %(copies)s
