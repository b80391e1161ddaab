"""How a program under measurement and the benchmark talk: lines of JSON over its standard
input and output. Only the standard library, since peers run it in environments of their own.

The program reads what to do, an object; prepares, and says `ready`; reads `go`; works, saying
`tick` a few times a second with `at` in seconds and the jobs `submitted` and `completed` so
far; says `done` with the same as the clock stopped; reads `finish`, lets the rest be worked,
and says `ledger`: submitted, stored, completed, duplicates, lost.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Spec = dict[str, Any]
_TICK_S = 0.25


def read_spec() -> Spec:
    """What to do, from the first line."""
    spec: Spec = json.loads(_line())
    return spec


def say(event: str, **fields: float) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


async def expect(word: str) -> None:
    """Waits for the benchmark's word. Without a benchmark there is nothing left to do."""
    if (got := await asyncio.to_thread(_line)) != word:
        raise SystemExit(f"expected {word!r}, got {got!r}")


async def tick(counts: Callable[[], dict[str, int]], started: float) -> None:
    """Says how far the work is until it is cancelled."""
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(_TICK_S)
            say("tick", at=time.perf_counter() - started, **counts())


def _line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise SystemExit("the benchmark has gone")
    return line.strip()
