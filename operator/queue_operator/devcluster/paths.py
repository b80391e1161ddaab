"""Where the development cluster keeps what it builds and what it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from queue_operator.devcluster.errors import DevClusterError

STATE_ROOT_VARIABLE = "QUEUE_OPERATOR_DEV_STATE_DIR"
CACHE_VARIABLE = "QUEUE_OPERATOR_CACHE_DIR"


def state_root(environ: Mapping[str, str] = os.environ, *, root: bool | None = None) -> Path:
    """The folder that holds one folder per cluster.

    Root's clusters live outside root's home, because Postgres runs as an
    unprivileged user and must reach its data.
    """
    if chosen := environ.get(STATE_ROOT_VARIABLE):
        return Path(chosen).absolute()
    if is_root() if root is None else root:
        return Path("/var/lib/queue-operator-dev")
    base = environ.get("XDG_STATE_HOME") or str(_home(environ) / ".local" / "state")
    return Path(base).absolute() / "queue-operator" / "dev"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for what is expensive to make and independent of any cluster."""
    if chosen := environ.get(CACHE_VARIABLE):
        return Path(chosen).absolute()
    base = environ.get("XDG_CACHE_HOME") or str(_home(environ) / ".cache")
    return Path(base).absolute() / "queue-operator"


def checkout_root(start: Path | None = None) -> Path:
    """The repository root: the nearest folder upwards that has `tools/cluster`.

    Raises:
        DevClusterError: neither this file nor the working directory is in a checkout.

    """
    starts = (start,) if start else (Path(__file__).resolve(), Path.cwd())
    for origin in starts:
        for folder in (origin, *origin.parents):
            if (folder / "tools" / "cluster").is_dir():
                return folder
    raise DevClusterError(
        "the development cluster is built from `tools/cluster` of a source checkout, and none "
        "was found: clone the repository and run `pip install -e '.[dev]'` in it"
    )


def is_root() -> bool:
    return os.geteuid() == 0


def _home(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    except RuntimeError:
        raise DevClusterError(
            f"this user has no home folder: set HOME, or {STATE_ROOT_VARIABLE} and "
            f"{CACHE_VARIABLE} to folders that it can write"
        ) from None
