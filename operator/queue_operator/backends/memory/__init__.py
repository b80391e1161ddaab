"""The contract as plain Python: for tests, and to say what every store must do."""

from queue_operator.backends.memory.backend import MemoryBackend
from queue_operator.backends.memory.shelf import MemoryShelf

__all__ = ["MemoryBackend", "MemoryShelf"]
