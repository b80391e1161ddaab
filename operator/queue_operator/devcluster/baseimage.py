"""A Debian base with Python, made by debootstrap: it stands in for the public base image."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from queue_operator.devcluster.buildah import Buildah
from queue_operator.devcluster.commands import run
from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.toolchain import IMAGE_PACKAGES, ensure_debian_packages

SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
TAG = f"localhost/queue-operator-base:{SUITE}-1"
# Package lists and archives are of no use in an image.
_EMPTIED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/locale")


def ensure(builder: Buildah, progress: Progress) -> str:
    """The tag of the base image, which is made on the first call in about a minute."""
    ensure_debian_packages(IMAGE_PACKAGES, progress)
    if not builder.has(TAG):
        builder.storage.mkdir(parents=True, exist_ok=True)
        with (
            progress.step(f"making a Debian {SUITE} base image with debootstrap"),
            tempfile.TemporaryDirectory(dir=builder.storage) as folder,
        ):
            root = Path(folder) / "root"
            run(debootstrap_command(root))
            _empty(root)
            builder.commit_root(root, TAG)
    return TAG


def debootstrap_command(root: Path) -> list[str | Path]:
    return ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root]


def _empty(root: Path) -> None:
    for name in _EMPTIED:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir()
