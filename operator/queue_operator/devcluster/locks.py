"""Locks between processes, on folders: nothing has to be cleaned up after them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def _make(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked_folder(path: Path, make: Callable[[Path], None] = _make) -> Iterator[None]:
    """Holds a folder for this process alone; has it made if it does not exist.

    The lock ends with the process, however that ends. A waiter whose folder was
    removed in the meantime starts over with a new one.
    """
    while True:
        make(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(path, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
