"""Generated from proto/queueoperator/v1: do not edit."""
