"""Runs the tests in parts side by side: two, or three in the full run. Each is a process with a
PostgreSQL of its own.

Most tests wait for something most of the time, so that one process leaves half of a machine with
two cores idle. What needs the cluster, and what injects faults, is in one part. The stores' own
tests are one in the full run, where their races take most of an hour.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from tests.conftest import POSTGRES_PORT, POSTGRES_PORT_VARIABLE

from queue_operator.devcluster import DevClusterError, Purpose, ensure, progress_for

ROOT: Final = Path(__file__).resolve().parent.parent
TESTS: Final = ROOT / "tests"
_FIRST: Final = (
    "unit",
    "contract",
    "contract_api",
    "contract_queue",
    "model",
    "integration/pooler",
    "integration/postgres",
)


_RACES: Final = "contract"
FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"


def parts(*, full: bool = FULL) -> list[list[str]]:
    """The folders and files of each part; a new one belongs to the second."""
    places = sorted(str(path.relative_to(TESTS)) for path in _places(TESTS))
    first = [place for place in _FIRST if not (full and place == _RACES)]
    second = [place for place in places if place not in _FIRST]
    divided = [first, second, [_RACES]] if full else [first, second]
    return [[f"tests/{place}" for place in part] for part in divided]


def _places(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name == "integration":
            yield from _places(path)
        elif path.match("test_*.py") or any(path.rglob("test_*.py")):
            yield path


def main(options: list[str]) -> int:
    try:
        ensure(Purpose.TEST, progress_for(sys.stderr))
    except DevClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    runs = [_start(number, part, options) for number, part in enumerate(parts())]
    tellers = [
        threading.Thread(target=_tell, args=(f"{number}| ", run.stdout))
        for number, run in enumerate(runs, 1)
    ]
    for teller in tellers:
        teller.start()
    try:
        statuses = [run.wait() for run in runs]
    except KeyboardInterrupt:
        # They have heard of it too, and take down what they brought up.
        statuses = [run.wait() for run in runs]
    for teller in tellers:
        teller.join()
    for part, status in zip(parts(), statuses, strict=True):
        print(f"{' '.join(part)}: {'passed' if status == 0 else f'failed with {status}'}")
    return max(map(abs, statuses))


def _start(number: int, part: list[str], options: list[str]) -> "subprocess.Popen[str]":
    environment = {**os.environ, POSTGRES_PORT_VARIABLE: str(POSTGRES_PORT + number)}
    cache = f"cache_dir=.pytest_cache/{number + 1}"
    command = [sys.executable, "-m", "pytest", "-o", cache, *part, *options]
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
