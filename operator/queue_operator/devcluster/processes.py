"""Daemons that outlive the command that starts them, and are never mistaken for another.

A process is known by its id, its start time and the boot it belongs to, so a
reused id is never signalled. Each daemon also carries the state folder in its
environment: that finds what a killed `up` started and did not record.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from queue_operator.devcluster.errors import NotReady
from queue_operator.devcluster.state import StateFolder, read_json, write_json

MARKER = "QUEUE_OPERATOR_DEV_FOLDER"
POLL_INTERVAL_S = 0.05


@dataclass(frozen=True)
class ProcessIdentity:
    """One process of one boot.

    Attributes:
        start_ticks: clock ticks between boot and start of the process.

    """

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The identity of a living process; None if there is none with that id."""
        ticks = _start_ticks(pid)
        return None if ticks is None else cls(pid, ticks, _boot_id())

    def alive(self) -> bool:
        _reap(self.pid)
        return ProcessIdentity.of(self.pid) == self

    def kill(self) -> None:
        """Kills the process, if it is still the same one, and waits for its end."""
        if self.alive():
            _kill(self.pid)
            wait_until(lambda: not self.alive(), f"the end of process {self.pid}", 10)


def spawn(
    folder: StateFolder,
    name: str,
    command: Sequence[str | Path],
    env: Mapping[str, str] | None = None,
) -> ProcessIdentity:
    """Starts a daemon in a session of its own; its output goes to `logs/NAME.log`."""
    words = [str(word) for word in command]
    log = folder.logs / f"{name}.log"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawnp(
        words[0],
        words,
        {**os.environ, **(env or {}), MARKER: str(folder.path)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGINT],
    )
    identity = ProcessIdentity.of(pid)
    if identity is None:
        raise NotReady(f"{name} ended at once: see {log}")
    return identity


def record(folder: StateFolder, name: str, identity: ProcessIdentity) -> None:
    write_json(folder.processes / f"{name}.json", asdict(identity))


def recorded(folder: StateFolder, name: str) -> ProcessIdentity | None:
    fields = read_json(folder.processes / f"{name}.json")
    return None if fields is None else ProcessIdentity(**fields)


def is_running(folder: StateFolder, name: str) -> bool:
    identity = recorded(folder, name)
    return identity is not None and identity.alive()


def child_of(folder: StateFolder, parent: ProcessIdentity, what: str) -> ProcessIdentity:
    """The only child of a wrapper such as `nsenter`, once it has one."""
    found: list[ProcessIdentity] = []

    def look() -> bool:
        if not parent.alive():
            raise NotReady(f"{what} ended at once: see {folder.logs / what}.log")
        found.extend(filter(None, (ProcessIdentity.of(pid) for pid in _children(parent.pid))))
        return bool(found)

    wait_until(look, f"the start of {what}", 60)
    return found[0]


def marked(folder: StateFolder) -> Iterator[ProcessIdentity]:
    """Every living process that was started for this folder, recorded or not."""
    wanted = f"{MARKER}={folder.path}".encode()
    for identity in all_processes():
        if wanted in _read(f"/proc/{identity.pid}/environ").split(b"\0"):
            yield identity


def kill_marked(folder: StateFolder) -> None:
    """Kills all of them and waits until none is left."""
    kill_all(lambda: list(marked(folder)), f"all processes of {folder.name}", 20)


def kill_all(find: Callable[[], Sequence[ProcessIdentity]], what: str, timeout_s: float) -> None:
    """Kills what `find` finds until it finds nothing: until it ends, a process may start others.

    Raises:
        NotReady: some did not end in time; the message says which, and what they are at.

    """

    def none_left() -> bool:
        left = find()
        for identity in left:
            _kill(identity.pid)
        return not left

    if not poll(none_left, timeout_s):
        left = "; ".join(map(described, find()))
        raise NotReady(f"waited {timeout_s:.0f} s in vain for the end of {what}; it left {left}")


def described(identity: ProcessIdentity) -> str:
    """What a process is, and what it is at: one that waits for its disk ends when that is done."""
    status = dict(
        line.split(":\t", 1)
        for line in _read(f"/proc/{identity.pid}/status").decode(errors="replace").splitlines()
        if ":\t" in line
    )
    if ProcessIdentity.of(identity.pid) != identity or "State" not in status:
        return f"process {identity.pid}, which has ended meanwhile"
    words = _read(f"/proc/{identity.pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
    waits = _read(f"/proc/{identity.pid}/wchan").decode().strip("0")
    state = f"state {status['State']}" + (f" in {waits}" if waits else "")
    return f"process {identity.pid} ({words.strip() or status['Name']}), {state}"


def poll(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition became true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Returns as soon as the condition holds.

    Raises:
        NotReady: it did not within the timeout; the message names `what`.

    """
    if not poll(condition, timeout_s):
        raise NotReady(f"waited {timeout_s:.0f} s in vain for {what}")


def all_processes() -> list[ProcessIdentity]:
    """Every living process of this machine."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [identity for identity in map(ProcessIdentity.of, pids) if identity is not None]


def _children(pid: int) -> list[int]:
    return [int(word) for word in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _start_ticks(pid: int) -> int | None:
    # The name, in brackets, may hold anything; the fields after it may not.
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    # The first thread of a killed process may be a zombie while others still hold its sockets.
    if not fields or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1):
        return None
    return int(fields[19])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError):
        return b""
