"""Traces of jobs by OpenTelemetry, which only this package imports, and only when they are on."""
