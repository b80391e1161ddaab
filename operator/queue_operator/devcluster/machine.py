"""What this machine allows: capabilities of this process, and file systems below a folder."""

from __future__ import annotations

import os
from pathlib import Path

from queue_operator.devcluster import cgroups
from queue_operator.devcluster.paths import is_root

# Numbers of capabilities(7): to make namespaces and mounts, and links and routes.
_CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12}


def what_a_node_lacks() -> list[str]:
    """Why no node can run here, each as a noun; empty if one can."""
    if not is_root():
        return ["root"]
    effective = _effective_capabilities(Path("/proc/self/status").read_text())
    missing = [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
    hierarchies = cgroups.hierarchies()
    if not hierarchies or not all(os.access(path, os.W_OK) for path in hierarchies):
        missing.append("a writable /sys/fs/cgroup")
    return missing


def file_system_of(folder: Path, mountinfo: str | None = None) -> str:
    """The type of the file system that a folder lies on, such as `ext4` or `overlay`."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    found, longest = "", -1
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        point = Path(left.split()[4])
        # A later mount hides an earlier one at the same place.
        if folder.resolve().is_relative_to(point) and len(point.parts) >= longest:
            found, longest = right.split()[0], len(point.parts)
    return found


def _effective_capabilities(status: str) -> int:
    return int(status.partition("CapEff:\t")[2].split()[0], 16)
