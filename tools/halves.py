"""Runs the tests as two processes side by side, each on a PostgreSQL of its own.

Most tests wait for something most of the time, so that one process leaves half of a machine with
two cores idle. What needs the cluster, and what injects faults, is in one half.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Final

from tests.conftest import POSTGRES_PORT, POSTGRES_PORT_VARIABLE

ROOT: Final = Path(__file__).resolve().parent.parent
_FIRST: Final = ("unit", "contract", "contract_queue", "model")
_NO_TESTS: Final = {"vectors", "__pycache__"}


def halves() -> list[list[str]]:
    """The folders of each half; a new one belongs to the second."""
    folders = sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir())
    second = [name for name in folders if name not in {*_FIRST, *_NO_TESTS}]
    return [[f"tests/{name}" for name in half] for half in (_FIRST, second)]


def main(options: list[str]) -> int:
    runs = [_start(number, half, options) for number, half in enumerate(halves())]
    tellers = [
        threading.Thread(target=_tell, args=(f"{number}| ", run.stdout))
        for number, run in enumerate(runs, 1)
    ]
    for teller in tellers:
        teller.start()
    try:
        statuses = [run.wait() for run in runs]
    except KeyboardInterrupt:
        # Both have heard of it too, and take down what they brought up.
        statuses = [run.wait() for run in runs]
    for teller in tellers:
        teller.join()
    for half, status in zip(halves(), statuses, strict=True):
        print(f"{' '.join(half)}: {'passed' if status == 0 else f'failed with {status}'}")
    return max(map(abs, statuses))


def _start(number: int, half: list[str], options: list[str]) -> "subprocess.Popen[str]":
    environment = {**os.environ, POSTGRES_PORT_VARIABLE: str(POSTGRES_PORT + number)}
    cache = f"cache_dir=.pytest_cache/{number + 1}"
    command = [sys.executable, "-m", "pytest", "-o", cache, *half, *options]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _tell(whose: str, output: "IO[str] | None") -> None:
    for line in output or ():
        print(f"{whose}{line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
