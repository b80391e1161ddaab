"""What several runs of the tests use at the same time, and the last one takes down."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from queue_operator.devcluster.locks import locked_folder

T = TypeVar("T")


@contextmanager
def used(
    lock: Path, start: Callable[[], T], remove: Callable[[], None], *, keep: bool
) -> Iterator[T]:
    """What `start` gives, for as long as it is used. Who is the only user removes it at the end,
    and before the start: what is there then was left by a run that was killed. A user that says
    `keep` does neither. `lock` is a file that need not exist.

    Whoever uses it shares the lock from before the start until the end, and has it alone to remove
    it. A lock that is exchanged for another one is let go in between, and lost where the other is
    not to be had. Nobody comes between, because who begins or ends waits for its turn; so nobody
    starts either what another one removes, or starts, at the same time.
    """
    turn = lock.with_suffix(".turn")
    with lock.open("w") as held:
        try:
            with locked_folder(turn):
                if not keep and _is_alone(held):
                    remove()
                fcntl.flock(held, fcntl.LOCK_SH)
                started = start()
            yield started
        finally:
            if not keep:
                with locked_folder(turn):
                    if _is_alone(held):
                        remove()
                    fcntl.flock(held, fcntl.LOCK_UN)


def _is_alone(held: IO[str]) -> bool:
    """Whether nobody else uses it: then the lock is had alone, and otherwise not any more."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
