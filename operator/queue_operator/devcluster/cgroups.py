"""The control groups of one node: a subtree of its own in every hierarchy."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from queue_operator.devcluster.processes import poll, wait_until

# What the kubelet asks of its root; on version 2 they are enabled from the top.
_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


def group_name(cluster: str) -> str:
    return f"queue-operator-{cluster}"


def create(cluster: str) -> None:
    """Makes the subtree that the kubelet is given as its root; idempotent."""
    for hierarchy in hierarchies():
        if (hierarchy / "cgroup.controllers").exists():
            _enable_controllers(hierarchy)
        group = hierarchy / group_name(cluster)
        group.mkdir(exist_ok=True)
        _inherit_cpuset(hierarchy, group)


def remove(cluster: str) -> None:
    """Kills what is left in the subtree and removes it, deepest first.

    Raises:
        NotReady: a process in it cannot be killed.

    """
    for hierarchy in hierarchies():
        group = hierarchy / group_name(cluster)
        if group.is_dir():
            wait_until(lambda group=group: _try_remove(group), f"the end of {group}", 20)  # type: ignore[misc]


def occupied(cluster: str) -> list[Path]:
    """The groups of that name in which something runs."""
    return [group for group in leftovers(cluster) if any(_members(group))]


def leftovers(cluster: str) -> list[Path]:
    groups = (hierarchy / group_name(cluster) for hierarchy in hierarchies())
    return [group for group in groups if group.exists()]


def hierarchies(mountinfo: str | None = None) -> list[Path]:
    """Mount points of all hierarchies, of both versions: runc uses both where both exist."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            found.append(Path(left.split()[4]))
    return found


def _enable_controllers(hierarchy: Path) -> None:
    available = (hierarchy / "cgroup.controllers").read_text().split()
    wanted = [f"+{name}" for name in _CONTROLLERS if name in available]
    if not wanted:
        return
    control = hierarchy / "cgroup.subtree_control"
    try:
        control.write_text(" ".join(wanted))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _move_to_leaf(hierarchy)
        control.write_text(" ".join(wanted))


def _move_to_leaf(hierarchy: Path) -> None:
    """Moves a container's processes out of its top group, which may hold none to have children."""
    leaf = hierarchy / "host"
    leaf.mkdir(exist_ok=True)
    for pid in (hierarchy / "cgroup.procs").read_text().split():
        # A process that has just ended, or a thread of the kernel, cannot be moved.
        with suppress(OSError):
            (leaf / "cgroup.procs").write_text(pid)


def _inherit_cpuset(hierarchy: Path, group: Path) -> None:
    # A new version 1 cpuset is empty, and no process can enter an empty one.
    for setting in ("cpuset.cpus", "cpuset.mems"):
        target = group / setting
        if target.exists() and not target.read_text().strip():
            target.write_text((hierarchy / setting).read_text())


def _try_remove(group: Path) -> bool:
    for pid in _members(group):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
    except OSError:
        return False
    return poll(lambda: not group.exists(), 1)


def _members(group: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(group):
        try:
            text = (Path(folder) / "cgroup.procs").read_text()
        except OSError:
            continue
        yield from (int(word) for word in text.split())
