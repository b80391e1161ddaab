"""Ends a run that hangs when a test, or all of them, are over, and says where everybody stands.

The timeout of a test interrupts what runs, once. A task that swallows its cancellation, as those of
a pool do that nobody closed, keeps its event loop from ever closing; no timeout ends that.
"""

import asyncio
import faulthandler
import gc
import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

SHOWN_S: Final = float(os.environ.get("QUEUE_OPERATOR_TEST_SHOWN_S", "900"))
"""A test that takes longer goes on, and says where it stands."""
ENDS_S: Final = float(os.environ.get("QUEUE_OPERATOR_TEST_ENDS_S", "300"))
"""A test, and what it used, is put away, and a run ends, within this."""
ALL_ENDS_S: Final = 3 * ENDS_S
"""With the last test a cluster may be taken down, which waits for another run that starts one."""
STATUS: Final = 3
_STDERR: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # What is said while a test runs is kept with the test, which may never end.
    config.stash[_STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with _watched(f"{item.nodeid} still runs after {SHOWN_S:g} s", SHOWN_S, item.config, _show):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, Any, Any]:
    seconds = ALL_ENDS_S if nextitem is None else ENDS_S
    what = f"{item.nodeid} is over, and has not been put away after {seconds:g} s"
    with _watched(what, seconds, item.config, _end):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """From now on only threads that do not end can keep the process."""
    what = f"all tests are over, and the process has not ended after {ENDS_S:g} s"
    _timer(what, ENDS_S, config, _end).start()


Act = Callable[[str, pytest.Config], None]


@contextmanager
def _watched(what: str, seconds: float, config: pytest.Config, act: Act) -> Iterator[None]:
    timer = _timer(what, seconds, config, act)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _timer(what: str, seconds: float, config: pytest.Config, act: Act) -> threading.Timer:
    timer = threading.Timer(seconds, act, (what, config))
    timer.daemon = True
    timer.name = "watches for tests that hang"
    return timer


def _show(what: str, config: pytest.Config) -> None:
    _tell(what, config.stash[_STDERR])


def _end(what: str, config: pytest.Config) -> None:
    """What failed until now is told first: nobody else would."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    try:
        if capture is not None:
            capture.suspend_global_capture(in_=True)
        if reporter is not None:
            reporter.summary_errors()
            reporter.summary_failures()
            reporter._tw.flush()
        _tell(what, config.stash[_STDERR])
    finally:
        os._exit(STATUS)


def _tell(what: str, descriptor: int) -> None:
    os.write(descriptor, f"\n{what}. All threads:\n".encode())
    faulthandler.dump_traceback(descriptor, all_threads=True)
    for loop in [one for one in gc.get_objects() if isinstance(one, asyncio.AbstractEventLoop)]:
        lines = [f"\nTasks of {loop}:"]
        for task in asyncio.all_tasks(loop):
            lines.append(f"{task.get_name()}, cancelled {task.cancelling()} times:")
            lines += _stands_at(task)
        os.write(descriptor, "\n".join([*lines, ""]).encode())


def _stands_at(task: "asyncio.Task[Any]") -> Iterator[str]:
    """Who waits for whom, from the outermost on."""
    waiting: Any = task.get_coro()
    while waiting is not None:
        kind = next((k for k in ("cr", "gi", "ag") if hasattr(waiting, f"{k}_frame")), "")
        frame = getattr(waiting, f"{kind}_frame", None)
        if frame is None:
            yield f"  {waiting!r}"
            return
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}'
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
