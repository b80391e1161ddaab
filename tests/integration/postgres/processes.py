"""Scripts that use a database from processes of their own."""

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.programs import Process, started

PROGRAM = Path(sys.executable).with_name("queue-operator")
_PRELUDE = """
import asyncio, json, os, sys

DSN = sys.argv[1]
ME = str(os.getpid())

def say(text):
    print(text, flush=True)
"""


def running(
    *command: str | Path, script: str | None = None, **env: str
) -> AbstractAsyncContextManager[Process]:
    """The command, or the script with the arguments; killed in the end if it still runs."""
    program = command if script is None else (sys.executable, "-c", _PRELUDE + script, *command)
    return started(*program, **env)
