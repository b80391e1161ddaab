"""Scripts that use a file from processes of their own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_PRELUDE = """
import asyncio, os, sys
from datetime import UTC, datetime
from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

PATH = sys.argv[1]
ME = str(os.getpid())

def say(text):
    print(text, flush=True)

def wait():
    sys.stdin.readline()
"""

Process = asyncio.subprocess.Process


@asynccontextmanager
async def running(path: Path, script: str, *arguments: str, **env: str) -> AsyncIterator[Process]:
    """The script with the path and the arguments; killed in the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PRELUDE + script,
        str(path),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=env or None,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(process: Process) -> str:
    """What it says next."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def finish(process: Process) -> list[str]:
    """Lets it go on, and gives what it says until its good end."""
    said, _ = await process.communicate(b"\n")
    assert process.returncode == 0
    return said.decode().split()


async def kill(process: Process) -> None:
    """SIGKILL: it gets to do nothing more."""
    process.kill()
    await process.wait()
