"""Programs that a test runs beside itself, and talks to line by line."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

Process = asyncio.subprocess.Process


@asynccontextmanager
async def started(*command: str | Path, **env: str) -> AsyncIterator[Process]:
    """The command, with `env` beside our own environment; killed in the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
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


async def finish(process: Process) -> str:
    """Lets it go on, and gives what it says until its good end."""
    said, told = await process.communicate(b"\n")
    assert process.returncode == 0, told.decode()
    return said.decode()


async def kill(process: Process) -> None:
    """SIGKILL: it gets to do nothing more."""
    process.kill()
    await process.wait()
