"""Children that a test forks off, beside a program that goes on."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

CHILDREN: Final = 4


@contextmanager
def forked(work: Callable[[int], object], folder: Path) -> Iterator[None]:
    """Children that do `work`, beside what the parent does meanwhile."""
    children = []
    for number in range(CHILDREN):
        pid = os.fork()
        if pid:
            children.append(pid)
            continue
        try:
            work(number)
            os._exit(0)
        except BaseException as error:
            (folder / str(number)).write_text(repr(error))
            os._exit(1)
    yield
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert ends == [0] * CHILDREN, [path.read_text() for path in folder.iterdir()]


def forked_with_a_loop(
    work: Callable[[int], Coroutine[Any, Any, object]], folder: Path
) -> AbstractContextManager[None]:
    """The same from inside a running loop; each child has one of its own."""

    def in_a_loop_of_its_own(number: int) -> None:
        # That of the parent goes on there.
        asyncio.events._set_running_loop(None)
        asyncio.run(work(number))

    return forked(in_a_loop_of_its_own, folder)
