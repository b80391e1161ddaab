"""The demo: a cluster from nothing, the operator, workers, and jobs of every fate."""
