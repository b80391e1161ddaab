"""The storage under load, and other queues beside it, on one PostgreSQL in one run."""
