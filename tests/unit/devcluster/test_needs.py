"""What a machine lacks, what is said of it, and what is installed."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from queue_operator.cli.dev import dev
from queue_operator.devcluster import machine, needs, toolchain
from queue_operator.devcluster.needs import MachineLacks, Purpose, ensure, findings
from queue_operator.devcluster.progress import LineProgress, SilentProgress

INSTALL = "apt-get update && apt-get install --no-install-recommends"
Script = Callable[[str, str], None]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a shell and nothing else: the folder of its programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(toolchain, "SYSTEM_PATH", "")
    monkeypatch.setattr(toolchain, "POLICY", programs / "policy-rc.d")
    monkeypatch.setattr(needs, "CERTIFICATES", tmp_path / "ca-certificates.crt")
    monkeypatch.setattr(machine, "what_a_node_lacks", lambda: [])
    for module in (needs, toolchain):
        monkeypatch.setattr(module, "is_root", lambda: True)
    return programs


@pytest.fixture
def script(bare: Path) -> Script:
    def write(name: str, text: str) -> None:
        (bare / name).write_text(f"#!/bin/sh\n{text}\n")
        (bare / name).chmod(0o755)

    return write


def missing(*purposes: Purpose) -> set[str]:
    return {finding.need.name for finding in findings(purposes) if finding.is_missing}


@pytest.mark.usefixtures("bare")
def test_all_that_is_missing_is_named_with_one_command_and_nothing_is_done() -> None:
    with pytest.raises(MachineLacks) as raised:
        ensure(Purpose.TEST, SilentProgress())
    first, *named, command = str(raised.value).splitlines()
    assert first == "`make test` needs what this machine lacks:"
    assert [name.strip() for name in named] == [
        *("make", "certificates", "Java 17 or later", "a C compiler", "curl", "pgbouncer"),
        *("prometheus", "promtool", "chromium"),
        *("runc", "nft", "conntrack", "ip", "nsenter", "buildah", "debootstrap"),
    ]
    packages = "make ca-certificates openjdk-17-jre-headless gcc libc6-dev"
    packages += " curl pgbouncer prometheus chromium"
    packages += " runc nftables conntrack iproute2 util-linux buildah debootstrap"
    assert command == f"on Debian or Ubuntu run, as root: {INSTALL} {packages}"


def test_each_purpose_has_needs_of_its_own(bare: Path) -> None:
    assert missing(Purpose.CHECK) == {"make"}
    assert missing(Purpose.BENCH) == {"make", "certificates"}
    apart = {"curl", "pgbouncer", "prometheus", "promtool", "chromium"}
    assert missing(Purpose.TEST) - missing(Purpose.DEMO) == apart


def test_root_of_a_debian_is_told_and_then_gets_what_is_missing(
    bare: Path, script: Script, tmp_path: Path
) -> None:
    log = tmp_path / "apt.log"
    brings = f'case "$*" in *install*) : > {needs.CERTIFICATES} ;; esac'
    script("apt-get", f'echo "$DEBIAN_FRONTEND $*" >> {log}; {brings}')
    script("make", "")
    told = io.StringIO()
    ensure(Purpose.BENCH, LineProgress(told))
    quiet = "noninteractive -y -qq -oDPkg::Lock::Timeout=300"
    assert log.read_text().splitlines() == [
        f"{quiet} update",
        f"{quiet} install --no-install-recommends ca-certificates",
    ]
    first = told.getvalue().splitlines()[0]
    assert first.endswith("Debian packages that will be installed now: ca-certificates")
    # The second time nothing is left to do.
    ensure(Purpose.BENCH, SilentProgress())
    assert len(log.read_text().splitlines()) == 2


def test_what_is_installed_starts_no_service(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(toolchain, "POLICY", policy)
    script("apt-get", f'{policy} prometheus start; echo "$?" >> {tmp_path / "told"}')
    toolchain.install_packages(["prometheus"], SilentProgress())
    assert (tmp_path / "told").read_text().split() == ["101", "101"]
    assert not policy.exists()


def test_what_a_machine_says_of_its_services_stands(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("of the machine")
    monkeypatch.setattr(toolchain, "POLICY", policy)
    script("apt-get", ":")
    toolchain.install_packages(["prometheus"], SilentProgress())
    assert policy.read_text() == "of the machine"


def test_who_is_not_root_installs_nothing(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "is_root", lambda: False)
    script("apt-get", f": > {tmp_path / 'called'}")
    with pytest.raises(MachineLacks, match=f"as root: {INSTALL} make ca-certificates"):
        ensure(Purpose.BENCH, SilentProgress())
    assert not (tmp_path / "called").exists()


def test_what_no_package_brings_is_told_before_anything_is_installed(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "what_a_node_lacks", lambda: ["CAP_SYS_ADMIN"])
    script("apt-get", f": > {tmp_path / 'called'}")
    with pytest.raises(MachineLacks) as raised:
        ensure(Purpose.TEST, SilentProgress())
    last = str(raised.value).splitlines()[-1]
    assert last == (
        "  a node of this machine: run it as root, in a container as root of a privileged one"
    )
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    ("told", "is_enough"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('openjdk version "21" 2023-09-19', True),
        ('java version "1.8.0_392"', False),
        ('openjdk version "11.0.22" 2024-01-16', False),
        ("Segmentation fault", False),
    ],
)
def test_java_must_be_new_enough(bare: Path, script: Script, told: str, is_enough: bool) -> None:
    script("java", f"echo '{told}' >&2")
    assert ("Java 17 or later" in missing(Purpose.DEMO)) == (not is_enough)


def test_the_java_of_java_home_goes_before_that_of_the_path(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("java", "echo 'openjdk version \"17\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert "Java 17 or later" in missing(Purpose.DEMO)


def test_a_compiler_without_headers_is_none(script: Script) -> None:
    script("cc", "exit 1")
    assert "a C compiler" in missing(Purpose.DEMO)
    script("cc", "exit 0")
    assert "a C compiler" not in missing(Purpose.DEMO)


@pytest.mark.usefixtures("bare")
def test_the_doctor_tells_people_and_programs() -> None:
    done = CliRunner().invoke(dev, ["doctor", "--for", "bench"])
    assert done.exit_code == 1
    assert f"missing: {INSTALL} ca-certificates" in done.stdout
    assert done.stdout.splitlines()[-2:] == [
        "make bench: not before the rest is here",
        f"on Debian or Ubuntu, all at once, as root: {INSTALL} make ca-certificates",
    ]
    told = json.loads(CliRunner().invoke(dev, ["doctor", "--for", "bench", "-o", "json"]).stdout)
    [certificates] = [one for one in told if one["need"] == "certificates"]
    assert certificates == {
        "need": "certificates",
        "for": ["bench", "demo", "test"],
        "found": None,
        "missing": True,
        "packages": ["ca-certificates"],
        "hint": f"{INSTALL} ca-certificates",
    }


def test_the_doctor_is_content_where_nothing_is_missing(bare: Path, script: Script) -> None:
    script("make", "")
    done = CliRunner().invoke(dev, ["doctor", "--for", "check"])
    assert done.exit_code == 0, done.output
    assert str(bare / "make") in done.stdout
    assert "missing" not in done.stdout
    assert done.stdout.splitlines()[-1] == "make check: all of it is here"
    both = CliRunner().invoke(dev, ["doctor", "--for", "check", "--for", "bench"])
    told = "make check: all of it is here; make bench: not before the rest is here"
    assert told in both.stdout.splitlines()
