"""A daemon is known by more than its process id."""

import dataclasses
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_operator.devcluster.errors import NotReady
from queue_operator.devcluster.processes import (
    ProcessIdentity,
    described,
    is_running,
    kill_all,
    kill_marked,
    marked,
    record,
    recorded,
    spawn,
    wait_until,
)
from queue_operator.devcluster.state import StateFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StateFolder]:
    folder = StateFolder(tmp_path / "dev")
    folder.create()
    yield folder
    kill_marked(folder)


@pytest.fixture
def daemon(folder: StateFolder) -> ProcessIdentity:
    return spawn(folder, "daemon", ["sh", "-c", "echo started; exec cat /dev/zero >/dev/null"])


def test_a_daemon_has_its_own_session_and_log(folder: StateFolder, daemon: ProcessIdentity) -> None:
    log = folder.logs / "daemon.log"
    wait_until(lambda: log.read_text() == "started\n", "the first line", 10)
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    assert int(fields[3]) == daemon.pid


def test_a_recorded_daemon_is_found_again(folder: StateFolder, daemon: ProcessIdentity) -> None:
    assert not is_running(folder, "daemon")
    record(folder, "daemon", daemon)
    assert recorded(folder, "daemon") == daemon
    assert is_running(folder, "daemon")


def test_a_killed_daemon_is_dead_even_before_anyone_waits_for_it(
    folder: StateFolder, daemon: ProcessIdentity
) -> None:
    record(folder, "daemon", daemon)
    daemon.kill()
    assert not daemon.alive()
    assert not is_running(folder, "daemon")


@pytest.mark.parametrize(
    "other", [{"start_ticks": 1}, {"boot_id": "00000000-0000-0000-0000-000000000000"}]
)
def test_a_reused_process_id_is_never_killed(
    daemon: ProcessIdentity, other: dict[str, int | str]
) -> None:
    stale = dataclasses.replace(daemon, **other)  # type: ignore[arg-type]
    assert not stale.alive()
    stale.kill()
    assert daemon.alive()


def test_a_zombie_counts_as_ended() -> None:
    child = subprocess.Popen(["true"])
    identity = ProcessIdentity.of(child.pid)
    wait_until(lambda: ProcessIdentity.of(child.pid) is None, "the end of the child", 10)
    assert identity is None or not identity.alive()
    child.wait()


def test_unrecorded_daemons_are_found_by_their_mark(
    folder: StateFolder, daemon: ProcessIdentity
) -> None:
    assert daemon in list(marked(folder))
    assert list(marked(StateFolder(folder.path.with_name("other")))) == []
    kill_marked(folder)
    assert not daemon.alive()


def test_signals_that_python_ignores_are_not_ignored_by_daemons(
    daemon: ProcessIdentity,
) -> None:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    ignored = int(status.partition("SigIgn:\t")[2].split()[0], 16)
    assert not ignored & 1 << signal.SIGPIPE - 1


def test_waiting_in_vain_names_what_was_awaited() -> None:
    with pytest.raises(NotReady, match="in vain for the moon"):
        wait_until(lambda: False, "the moon", 0)


def test_killing_goes_on_until_nothing_is_found(folder: StateFolder) -> None:
    """Each turn finds one more, as where a process goes on starting others until it ends."""
    waiting = [spawn(folder, f"daemon{n}", ["sleep", "600"]) for n in range(3)]
    started: list[ProcessIdentity] = []

    def find() -> list[ProcessIdentity]:
        if waiting:
            started.append(waiting.pop())
        return [one for one in started if one.alive()]

    kill_all(find, "the daemons", 30)
    assert (len(started), [one.alive() for one in started]) == (3, [False] * 3)


def test_what_does_not_end_is_named_with_what_it_is_at(
    folder: StateFolder, daemon: ProcessIdentity
) -> None:
    sleeper = spawn(folder, "sleeper", ["sleep", "600"])
    told = rf"process {sleeper.pid} \(sleep 600\), state [A-Z] \([a-z ]+\)( in [\w.]+)?"
    # A program that has just been started has no words yet.
    wait_until(lambda: re.fullmatch(told, described(sleeper)) is not None, "its words", 10)
    daemon.kill()
    ended = f"process {daemon.pid}, which has ended meanwhile"
    with pytest.raises(NotReady, match=f"0 s in vain for the end of the moon; it left {ended}$"):
        kill_all(lambda: [daemon], "the moon", 0)
