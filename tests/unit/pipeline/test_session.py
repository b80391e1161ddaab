"""What is needed before Spark can start, and what is said when it is missing."""

import os
import shlex
from pathlib import Path

import pytest

from queue_operator.pipeline import session
from queue_operator.pipeline.errors import DriverMissing, JavaMissing, NoAccount, NoCacheFolder
from queue_operator.pipeline.session import build_session, ivy_dir, java_program, prefetch_jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "queue-operator" / "ivy"


def java_that(script: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))


def test_without_java_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        JavaMissing, match="apt-get update && apt-get install openjdk-17-jre-headless"
    ):
        build_session()


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that("exit 0", tmp_path, monkeypatch)
    assert java_program() == tmp_path / "bin" / "java"


def test_a_cached_driver_needs_no_java_and_no_network(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = cache / "jars" / "org.postgresql_postgresql-42.7.8.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert prefetch_jars() == jar
    assert ivy_dir() == cache


def test_a_driver_that_cannot_be_fetched_is_named(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that("echo no route to host >&2; exit 1", tmp_path / "java", monkeypatch)
    with pytest.raises(DriverMissing, match="no route to host") as raised:
        prefetch_jars()
    assert "org.postgresql:postgresql:" in raised.value.message
    assert str(cache / "jars") in raised.value.message


UNKNOWN_ID = 1_000_680_000
"""As OpenShift gives to a pod; nobody has it."""


def test_a_user_without_an_account_is_told_what_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: UNKNOWN_ID)
    with pytest.raises(NoAccount) as raised:
        build_session()
    assert "user id 1000680000 has no line in /etc/passwd" in raised.value.message
    assert "`spark:x:1000680000:0::/tmp:/bin/sh`" in raised.value.message


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(NoCacheFolder, match="this user has no home: set XDG_CACHE_HOME"):
        prefetch_jars()


def test_a_cache_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that("exit 1", tmp_path / "java", monkeypatch)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NoCacheFolder, match="Not a directory: set XDG_CACHE_HOME"):
        prefetch_jars()


@pytest.mark.parametrize(
    ("variable", "given", "told"),
    [
        ("HTTPS_PROXY", "http://someone:secret@proxy.example:3128", "proxy.example 3128"),
        ("https_proxy", "proxy.example:3128", "proxy.example 3128"),
        ("HTTPS_PROXY", "http://[fd00::1]:3128/", "fd00::1 3128"),
        ("HTTPS_PROXY", "nonsense", ""),
    ],
)
def test_java_is_told_of_the_proxy_of_the_environment(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    given: str,
    told: str,
) -> None:
    told_java = 'for word in "$@"; do case "$word" in -Dhttps*) echo "<${word#*=}>" ;; esac; done'
    java_that(f"{told_java}; exit 1", tmp_path / "java", monkeypatch)
    monkeypatch.setenv(variable, given)
    with pytest.raises(DriverMissing) as raised:
        prefetch_jars()
    said = raised.value.message.partition("Ivy said: ")[2]
    assert said.replace("<", "").replace(">", "").split() == told.split()


def test_a_cache_folder_may_have_a_space_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that("exit 0", tmp_path / "java", monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    archive = session.class_archive()
    assert " " in str(archive)
    assert f"-XX:SharedArchiveFile={archive}" in shlex.split(session._java_options(None))
