"""The push queue: streams, capacity, wake-ups."""
