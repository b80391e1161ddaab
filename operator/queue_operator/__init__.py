"""Queue Operator: a durable job queue for Kubernetes."""

__version__ = "0.1.0"
