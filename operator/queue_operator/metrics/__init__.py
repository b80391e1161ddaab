"""What Prometheus sees: one table of metrics, one place that counts, one server."""
