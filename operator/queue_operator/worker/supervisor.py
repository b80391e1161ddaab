"""The process above a handler's: to end the handler is to end all that it has started.

A handler may start programs, and they may start others, in sessions of their own. Whoever ends
the handler's process (the worker at a timeout, the kernel for its memory, an administrator) does
not know them. The supervisor does: what loses its parent below it becomes its child. It
computes nothing, so it also sees that the worker is gone while a library keeps the handler's
interpreter to itself.
"""

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn


def _is_supported() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        # An old kernel, or a sandbox.
        return False
    return True


SUPPORTED: Final = _is_supported()
"""Elsewhere a handler's process leads a group, which is ended by the worker alone."""

END_ALL: Final = signal.SIGUSR1 if SUPPORTED else signal.SIGTERM
"""From the worker: at once, without a chance to clean up. SIGTERM gives one."""

PARENT_GONE: Final = 1
_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36


def split(connection: "Connection[Any, Any]") -> None:
    """Returns in a new process, below the one that called, which supervises it from now on until
    both end. Called before any thread is started or code of the user's imported: what these have
    made does not outlive a fork.
    """
    if not SUPPORTED:
        return
    _control(_SET_CHILD_SUBREAPER, 1)
    above = os.getpid()
    handler = os.fork()
    if handler:
        _supervise(handler, connection)
    # A group of its own, which signals reach as a whole.
    os.setsid()
    _control(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != above:
        os._exit(PARENT_GONE)


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)


def _supervise(handler: int, connection: "Connection[Any, Any]") -> NoReturn:
    def forward(_number: int, _frame: FrameType | None) -> None:
        _kill_group(handler, signal.SIGTERM)

    def end(_number: int, _frame: FrameType | None) -> None:
        _kill_group(handler, signal.SIGKILL)

    def reap(_number: int, _frame: FrameType | None) -> None:
        _reap_all_but(handler)

    try:
        signal.signal(signal.SIGTERM, forward)
        signal.signal(END_ALL, end)
        signal.signal(signal.SIGCHLD, reap)
        _wait(handler, connection)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Before its status is read its number cannot be another's.
        _kill_group(handler, signal.SIGKILL)
        _, status = os.waitpid(handler, 0)
        _end_descendants()
    except BaseException:
        _kill_group(handler, signal.SIGKILL)
        os._exit(PARENT_GONE)
    _end_as(status)


def _wait(handler: int, connection: "Connection[Any, Any]") -> None:
    """Until the handler's process has ended. Ends it when the worker is gone."""
    ended = os.pidfd_open(handler)
    changes = select.poll()
    changes.register(ended, select.POLLIN)
    # Nothing is read here: only that the other end was closed is told.
    changes.register(connection.fileno(), 0)
    while True:
        seen = {number for number, _ in changes.poll()}
        if ended in seen:
            return
        changes.unregister(connection.fileno())
        _kill_group(handler, signal.SIGKILL)


def _reap_all_but(handler: int) -> None:
    """Reads how orphans ended, of which the handler may leave one with every job: until that is
    done each takes a number of the system's. The handler's own status is read at its end.
    """
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == handler:
                return
            os.waitpid(ended.si_pid, 0)


def _kill_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except PermissionError:
        pass  # one of them has become somebody else's
    except ProcessLookupError:
        # Right after the fork it does not lead one yet.
        with suppress(ProcessLookupError):
            os.kill(leader, number)


def _end_descendants() -> None:
    """All that became children of this process because their parents are gone."""
    while children := _children():
        for child in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _children() -> list[int]:
    own = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]
    except OSError:
        return []


def _end_as(status: int) -> NoReturn:
    """Ends this process as that one ended, so that the worker can tell why."""
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
