"""Scripts that use a file from processes of their own."""

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.programs import Process, started

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


def running(
    path: Path, script: str, *arguments: str, **env: str
) -> AbstractAsyncContextManager[Process]:
    """The script with the path and the arguments; killed in the end if it still runs."""
    return started(sys.executable, "-c", _PRELUDE + script, path, *arguments, **env)
