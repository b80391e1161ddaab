"""The data pipeline: from the event log in Postgres to a Parquet lake and hourly roll-ups.

`jobs.run_pipeline` is the whole of it; the other modules are its steps.
"""
