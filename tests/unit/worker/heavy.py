"""Handlers that run in processes of their own, which import this module."""

import atexit
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

from queue_operator.worker import Depends, JobContext, PermanentError, Retry, Worker

worker = Worker()


class Odd(Exception):
    """One that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("odd")
        self.lock = (lambda: None).__get__(self)


def pid(ctx: JobContext) -> int:
    return os.getpid()


def echo(ctx: JobContext, payload: dict[str, int]) -> dict[str, Any]:
    return {
        "payload": payload,
        "job": [ctx.job_id, ctx.type, ctx.attempt, ctx.correlation_id, dict(ctx.tags)],
        "created": ctx.created_at.isoformat(),
        "deadline": ctx.deadline is not None,
        "worker": ctx.worker.name,
        "checkpoint": (ctx.last_checkpoint() or b"").decode(),
        "main": multiprocessing.current_process().name,
    }


def raises(ctx: JobContext, payload: str) -> object:
    match payload:
        case "retry":
            raise Retry("later", after=7)
        case "permanent":
            raise PermanentError("never", code="NEVER", context={"why": "because"})
        case "key":
            raise KeyError("missing")
        case "odd":
            raise Odd
        case "exit":
            sys.exit(3)
    return object()


def spin(ctx: JobContext, payload: str = "") -> str:
    """Computes until it is asked to stop; with a file to write to until it is made to."""
    ctx.report_progress(1, str(os.getpid()))
    try:
        while payload or not ctx.is_cancelled():
            sum(range(10_000))
    finally:
        if payload:
            Path(payload).write_text("cleaned up")
    return "asked"


def deaf(ctx: JobContext, payload: str) -> None:
    """Stops for nobody but SIGKILL."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.report_progress(1, str(os.getpid()))
    while True:
        sum(range(10_000))


def dies(ctx: JobContext, payload: str) -> None:
    if payload == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(int(payload))


def talks(ctx: JobContext) -> str:
    ctx.report_progress(50, "half")
    ctx.log("info", "from within", answer=42, odd=lambda: None)
    logging.getLogger("theirs").warning("plain %s", "text")
    ctx.checkpoint(b"state")
    return str(ctx.spawn("child", {"a": 1}))


def counted() -> Iterator[list[int]]:
    calls: list[int] = []
    yield calls
    Path(os.environ["HEAVY_CLOSED"]).write_text(f"closed after {len(calls)}")


def uses(ctx: JobContext, calls: Annotated[list[int], Depends(counted, scope="worker")]) -> int:
    calls.append(1)
    return len(calls)


def has_children(ctx: JobContext) -> int:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(os.getppid) - os.getpid()


def starts(ctx: JobContext, payload: str) -> None:
    """Starts a program that goes on by itself, tells both numbers, and waits or dies."""
    how, _, then = payload.partition(" ")
    if how == "orphan":
        command = ["sh", "-c", "sleep 7303 >/dev/null 2>&1 & echo $!"]
        number = int(subprocess.run(command, capture_output=True, check=True).stdout)
    else:
        started = subprocess.Popen(["sleep", "7303"], start_new_session=how == "session")
        number = started.pid
    ctx.report_progress(1, f"{os.getpid()} {number}")
    if then == "dies":
        # Once that is told.
        ctx.checkpoint(b"")
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def lingers(ctx: JobContext) -> int:
    """Leaves a program behind, and a process that does not want to end."""
    atexit.register(threading.Event().wait)
    return subprocess.Popen(["sleep", "7303"], start_new_session=True).pid


def leaves(ctx: JobContext) -> int:
    """Leaves a program behind that ends at once, and nobody below the supervisor waits for."""
    command = ["sh", "-c", "true >/dev/null 2>&1 & echo $!"]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no words")

    def __reduce__(self) -> str:
        raise ValueError("no pickle")


def logs_oddly(ctx: JobContext) -> None:
    log = logging.getLogger("theirs")
    log.warning("of a lock: %s", "x", extra={"lock": threading.Lock(), "pair": {"a": (1, "b")}})
    log.warning("%d of too few", extra={"odd": Unspeakable()})
    log.warning(Unspeakable())
    ctx.log("info", "fields", odd=Unspeakable(), pair={"a": 1})


FOUND: ContextVar[str] = ContextVar("FOUND", default="nobody")


def finds(ctx: JobContext) -> str:
    found = FOUND.get()
    FOUND.set("left behind")
    return found


HANDLERS: list[Callable[..., Any]] = [
    pid,
    echo,
    raises,
    spin,
    deaf,
    dies,
    talks,
    uses,
    has_children,
    starts,
    lingers,
    leaves,
    logs_oddly,
    finds,
]
for handler in HANDLERS:
    worker.handler(handler.__name__, runs_in="process", concurrency=8)(handler)
