"""What is needed before Spark can start, and what is said when it is missing."""

from pathlib import Path

import pytest

from queue_operator.pipeline.errors import DriverMissing, JavaMissing
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
    with pytest.raises(JavaMissing, match="apt-get install openjdk-17-jre-headless"):
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
