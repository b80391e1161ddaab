"""What a machine must have for the demo, the tests and the benchmark, and how it is got.

Whatever can be fetched without the user is: Go, kubectl, PostgreSQL, the cluster's programs. What
is here comes from the system.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from queue_operator.devcluster import machine
from queue_operator.devcluster.commands import succeeds
from queue_operator.devcluster.errors import DevClusterError
from queue_operator.devcluster.kind import docker_answers
from queue_operator.devcluster.paths import is_root
from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.toolchain import (
    IMAGE_PACKAGES,
    JAVA_PACKAGE,
    NODE_PACKAGES,
    find_program,
    install_command,
    install_packages,
    may_install,
)

MINIMUM_JAVA: Final = 17
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")


class Purpose(StrEnum):
    """What somebody wants to do in a checkout; each is a target of `make`."""

    CHECK = "check"
    DEMO = "demo"
    TEST = "test"
    BENCH = "bench"


_ALL: Final = frozenset(Purpose)
_PODS: Final = frozenset({Purpose.DEMO, Purpose.TEST})
_TESTS: Final = frozenset({Purpose.TEST})


@dataclass(frozen=True)
class Need:
    """One thing of the system.

    Attributes:
        packages: of Debian and Ubuntu, that bring it; none where no package does.
        look: what is found of it, "" for nothing.
        advice: what to do where no package helps.

    """

    name: str
    purposes: frozenset[Purpose]
    packages: tuple[str, ...]
    look: Callable[[], str]
    advice: str = ""

    def hint(self) -> str:
        """How to get it."""
        return install_command(self.packages) if self.packages else self.advice


@dataclass(frozen=True)
class Finding:
    """A need, and what was found of it."""

    need: Need
    found: str

    @property
    def is_missing(self) -> bool:
        return not self.found


class MachineLacks(DevClusterError):
    """Something of the system is missing, and is not installed without the user."""

    def __init__(self, purpose: Purpose, missing: Sequence[Need]) -> None:
        packages = tuple(dict.fromkeys(p for need in missing for p in need.packages))
        lines = [f"`make {purpose}` needs what this machine lacks:"]
        lines += [f"  {need.name}" for need in missing if need.packages]
        if packages:
            lines.append(f"on Debian or Ubuntu run, as root: {install_command(packages)}")
        lines += [f"  {need.name}: {need.advice}" for need in missing if not need.packages]
        super().__init__("\n".join(lines))
        self.missing = tuple(missing)


def needs() -> list[Need]:
    """Everything, in the order in which it is told."""
    # Without root there is no node of ours: the demo then runs on Docker, which has all of this.
    ours = _PODS if is_root() else _TESTS
    node = [_program(program, ours, package) for package, program in NODE_PACKAGES.items()]
    images = [_program(program, ours, package) for package, program in IMAGE_PACKAGES.items()]
    return [
        Need("Python 3.11 or later", _ALL, (), lambda: sys.version.split()[0]),
        Need("Python's venv and pip", _ALL, ("python3-venv",), _venv),
        _program("make", _ALL, "make"),
        Need("certificates", _ALL - {Purpose.CHECK}, ("ca-certificates",), _certificates),
        Need(f"Java {MINIMUM_JAVA} or later", _PODS, (JAVA_PACKAGE,), _java),
        Need("a C compiler", _PODS, ("gcc", "libc6-dev"), _compiler),
        _program("curl", _TESTS, "curl"),
        _program("pgbouncer", _TESTS, "pgbouncer"),
        _program("prometheus", _TESTS, "prometheus"),
        _program("promtool", _TESTS, "prometheus"),
        _program("chromium", _TESTS, "chromium"),
        *node,
        *images,
        Need(
            "a place for pods",
            frozenset({Purpose.DEMO}),
            (),
            lambda: _node() or ("Docker" if docker_answers() else ""),
            "run it as root (in a container: a privileged one), or start Docker",
        ),
        Need(
            "a node of this machine",
            _TESTS,
            (),
            _node,
            "run it as root, in a container as root of a privileged one",
        ),
    ]


def findings(purposes: Sequence[Purpose] = tuple(Purpose)) -> list[Finding]:
    """What there is of what these need."""
    wanted = [need for need in needs() if need.purposes.intersection(purposes)]
    return [Finding(need, need.look()) for need in wanted]


def ensure(purpose: Purpose, progress: Progress) -> None:
    """Installs what is missing, after saying so, where that is possible.

    Raises:
        MachineLacks: it is not; nothing was done, and everything that is missing is named.

    """
    missing = [finding.need for finding in findings((purpose,)) if finding.is_missing]
    if not missing:
        return
    packages = tuple(dict.fromkeys(package for need in missing for package in need.packages))
    if not all(need.packages for need in missing) or not may_install():
        raise MachineLacks(purpose, missing)
    install_packages(packages, progress)


def _program(program: str, purposes: frozenset[Purpose], package: str) -> Need:
    def look() -> str:
        found = find_program(program)
        return str(found) if found else ""

    return Need(program, purposes, (package,), look)


def _venv() -> str:
    """In an environment that was made with it there is no question."""
    if sys.prefix != sys.base_prefix:
        return sys.prefix
    return sys.executable if succeeds([sys.executable, "-c", "import ensurepip"]) else ""


def _certificates() -> str:
    return str(CERTIFICATES) if CERTIFICATES.exists() else ""


def _java() -> str:
    """Its version, where it is new enough; Spark takes that of JAVA_HOME before that of PATH."""
    home = os.environ.get("JAVA_HOME")
    program = Path(home) / "bin" / "java" if home else find_program("java")
    if program is None or not os.access(program, os.X_OK):
        return ""
    told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    # Up to version 8 it was called 1.8.
    match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', told.stderr + told.stdout)
    if match is None or int(match[1]) < MINIMUM_JAVA:
        return ""
    return f"{program}, version {match[1]}"


def _compiler() -> str:
    """With the headers of the C library, which come in a package of their own."""
    program = find_program("cc")
    if program is None:
        return ""
    command = [str(program), "-E", "-x", "c", "-o", "/dev/null", "-"]
    source = "#include <stdlib.h>\n"
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return str(program) if done.returncode == 0 else ""


def _node() -> str:
    if sys.platform != "linux" or machine.what_a_node_lacks():
        return ""
    return "root, with the rights that a node needs"
