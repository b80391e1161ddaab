"""Installs peers into the benchmark's own folder of the user's cache."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.runner import System
from queue_operator.devcluster import DevClusterError, progress_for
from queue_operator.devcluster.paths import cache_dir
from queue_operator.devcluster.toolchain import ensure_go

_HERE: Final = Path(__file__).resolve().parent
_SOURCES: Final = _HERE / "river"
_REQUIREMENTS: Final = _HERE / "pgqueuer-requirements.txt"


class PeerMissing(Exception):
    """A peer cannot be installed here; the message says what to do."""


def river() -> System:
    """Builds the program around River, whose modules Go fetches and checks."""
    sources = [_SOURCES / name for name in ("main.go", "go.mod", "go.sum")]
    program = _folder() / f"river-{_digest(sources)}"
    if not program.exists():
        try:
            go = ensure_go(progress_for(sys.stderr))
        except DevClusterError as error:
            raise PeerMissing(f"River needs Go, or leave out `--peer river`: {error}") from error
        _run("River", [str(go), "build", "-C", str(_SOURCES), "-o", f"{program}.partial", "."])
        Path(f"{program}.partial").rename(program)
    return System("river", [str(program)])


def pgqueuer() -> System:
    """Makes an environment of PgQueuer's own; only `bench.lines` is shared with it."""
    environment = _folder() / f"pgqueuer-{_digest([_REQUIREMENTS])}"
    python, ready = environment / "bin" / "python", environment / ".ready"
    if not ready.exists():
        uv = [sys.executable, "-m", "uv"]
        _run("PgQueuer", [*uv, "venv", "--clear", "--python", sys.executable, str(environment)])
        install = [*uv, "pip", "install", "--python", str(python), "-r", str(_REQUIREMENTS)]
        _run("PgQueuer", install)
        ready.touch()
    return System(
        "pgqueuer",
        [str(python), "-P", "-m", "bench.peers.pgqueuer_peer"],
        {**os.environ, "PYTHONPATH": str(_HERE.parents[1])},
    )


def version(peer: str) -> str:
    """The version that the peer's file of requirements names."""
    if peer == "pgqueuer":
        return _REQUIREMENTS.read_text().splitlines()[0].partition("==")[2]
    for line in (_SOURCES / "go.mod").read_text().splitlines():
        name, _, found = line.strip().partition(" v")
        if name == "github.com/riverqueue/river":
            return found
    raise PeerMissing(f"{_SOURCES / 'go.mod'} does not name River")


def _folder() -> Path:
    folder = cache_dir() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _run(peer: str, command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise PeerMissing(f"{peer} could not be installed: `{' '.join(command)}` said\n{last}")
