"""The control plane alone, as a user who is not root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from queue_operator.devcluster.commands import run
from queue_operator.devcluster.paths import cache_dir, is_root

NAME = "test-plain"
UID = 65534


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A state folder that the unprivileged user may write, and the programs built before."""
    state = tmp_path / "state"
    state.mkdir()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    if is_root():
        os.chown(state, UID, UID)
    return {
        **os.environ,
        "QUEUE_OPERATOR_DEV_STATE_DIR": str(state),
        "QUEUE_OPERATOR_CACHE_DIR": str(cache_dir()),
    }


@pytest.fixture
def info(environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    try:
        yield json.loads(_as_user(environment, "up", "--provider=control-plane", "--output=json"))
    finally:
        _as_user(environment, "down")


def test_api_and_postgres_without_root(info: dict[str, Any], environment: dict[str, str]) -> None:
    assert info["has_node"] is False
    assert info["host_address"].startswith("127.99.")
    kubectl = [info["kubectl"], f"--kubeconfig={info['kubeconfig']}"]
    assert run([*kubectl, "get", "--raw=/readyz"]) == "ok"
    run([*kubectl, "create", "configmap", "trial"])
    with psycopg.connect(info["postgres_dsn"]) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("queue_operator",)
    found = json.loads(_as_user(environment, "status", "--output=json"))
    assert found[0]["ready"] is True
    assert set(found[0]["parts"]) == {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "postgres",
    }
    owners = {Path(f"/proc/{pid}").stat().st_uid for pid in _pids(environment)}
    assert owners == {UID if is_root() else os.getuid()}


def _as_user(environment: dict[str, str], command: str, *options: str) -> str:
    program = "from queue_operator.cli.dev import dev; dev()"
    line = [sys.executable, "-c", program, command, f"--name={NAME}", *options]
    if is_root():
        # The right to read alone lets this user run a Python that lies in root's home.
        reading = "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"
        user = f"--reuid={UID}", f"--regid={UID}", "--clear-groups"
        line = ["setpriv", *user, *reading, "--", *line]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _pids(environment: dict[str, str]) -> list[int]:
    folder = Path(environment["QUEUE_OPERATOR_DEV_STATE_DIR"]) / NAME / "processes"
    return [json.loads(path.read_text())["pid"] for path in folder.glob("*.json")]
