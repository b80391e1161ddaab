"""`make check` and `make test` bring what they need; nothing else may hide a missing step."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "python.sh"


def test_ci_runs_what_everybody_runs_and_installs_nothing() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    done = [line for line in lines if line and not line.startswith("#")]
    assert done == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make check", "make test"]


class Machine:
    """A folder of stand-ins for programs, which note how they were called."""

    def __init__(self, folder: Path) -> None:
        self._programs = folder / "bin"
        self._programs.mkdir()
        self._log = folder / "log"
        self._log.touch()

    def has(self, name: str, text: str = "") -> None:
        path = self._programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self._log}\n{text}\n')
        path.chmod(0o755)

    def run(self) -> tuple[int, str, list[str]]:
        """Exit code, what was said, and the calls of apt-get."""
        environment = {**os.environ, "PATH": str(self._programs)}
        done = subprocess.run(
            ["/bin/sh", SCRIPT], env=environment, capture_output=True, text=True, check=False
        )
        calls = self._log.read_text().splitlines()
        said = done.stdout + done.stderr
        return done.returncode, said, [call for call in calls if call.startswith("apt-get")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


WITHOUT_VENV = 'case "$2" in *ensurepip*) exit 1 ;; esac'


def test_a_python_that_can_make_environments_is_left_alone(machine: Machine) -> None:
    machine.has("python3")
    assert machine.run() == (0, "", [])


def test_root_of_a_debian_gets_the_package_after_it_was_said(machine: Machine) -> None:
    machine.has("python3", WITHOUT_VENV)
    machine.has("id", "echo 0")
    machine.has("apt-get")
    code, said, calls = machine.run()
    assert (code, said) == (0, "Debian packages that will be installed now: python3-venv\n")
    assert calls[-1].endswith("install --no-install-recommends python3-venv")


@pytest.mark.parametrize(("uid", "has_apt"), [("1000", True), ("0", False)])
def test_elsewhere_the_command_is_named(machine: Machine, uid: str, has_apt: bool) -> None:
    machine.has("python3", WITHOUT_VENV)
    machine.has("id", f"echo {uid}")
    if has_apt:
        machine.has("apt-get")
    code, said, calls = machine.run()
    assert (code, calls) == (1, [])
    assert (
        "on Debian or Ubuntu run, as root: apt-get update && apt-get install python3-venv" in said
    )


def test_an_old_python_is_told_with_its_version(machine: Machine) -> None:
    version = 'case "$1" in --version) echo Python 3.9.2 ;; *) exit 1 ;; esac'
    machine.has("python3", version)
    code, said, _ = machine.run()
    assert (code, said) == (1, "error: Python 3.9.2 is too old: 3.11 or later is needed\n")


def test_without_python_both_packages_are_named(machine: Machine) -> None:
    code, said, _ = machine.run()
    assert code == 1
    assert "apt-get update && apt-get install python3 python3-venv" in said
