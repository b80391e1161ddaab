"""The contract as plain Python: for tests, and to say what every store must do."""

from queue_operator.backends.memory.backend import MemoryBackend, Shelf

__all__ = ["MemoryBackend", "Shelf"]
