"""The command group `dev`, without a cluster."""

import io
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from queue_operator.cli.dev import dev
from queue_operator.devcluster import kind
from queue_operator.devcluster.progress import LineProgress, progress_for
from queue_operator.devcluster.state import folder_of


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUEUE_OPERATOR_DEV_STATE_DIR", str(tmp_path / "clusters"))
    return tmp_path / "clusters"


@pytest.mark.parametrize("command", ["up", "down", "status", "load-image", "build-image"])
def test_every_command_has_help(command: str) -> None:
    result = CliRunner().invoke(dev, [command, "--help"])
    assert result.exit_code == 0
    assert "--name" in result.output


def test_status_without_clusters() -> None:
    assert "queue-operator dev up" in CliRunner().invoke(dev, ["status"]).output
    assert json.loads(CliRunner().invoke(dev, ["status", "-o", "json"]).output) == []


def test_status_of_a_cluster_that_does_not_run() -> None:
    folder = folder_of("dev")
    folder.create()
    folder.write_settings("control-plane", slot=63, loopback=True)
    result = CliRunner().invoke(dev, ["status", "--name", "dev", "-o", "json"])
    assert result.exit_code == 1
    (found,) = json.loads(result.output)
    assert found["provider"] == "control-plane"
    assert found["ready"] is False
    assert not any(found["parts"].values())


@pytest.mark.parametrize("command", ["down", "status"])
def test_a_missing_cluster_is_reported_without_a_traceback(command: str) -> None:
    result = CliRunner().invoke(dev, [command, "--name", "gone"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: no development cluster named 'gone'")


def test_existing_needs_a_database_and_leaves_no_trace(root: Path) -> None:
    result = CliRunner().invoke(dev, ["up", "--provider", "existing"])
    assert result.exit_code == 1
    assert "--postgres-dsn is required" in result.output
    assert not root.exists() or list(root.iterdir()) == []


def test_an_existing_cluster_that_does_not_answer_leaves_no_trace(
    root: Path, tmp_path: Path
) -> None:
    server = {"server": "https://127.0.0.1:1"}
    config = {
        "current-context": "there",
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "me"}}],
        "clusters": [{"name": "there", "cluster": server}],
        "users": [{"name": "me", "user": {}}],
    }
    (tmp_path / "config").write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config"} | config)
    )
    options = ["--kubeconfig", str(tmp_path / "config"), "--postgres-dsn", "host=127.0.0.1 port=1"]
    result = CliRunner().invoke(dev, ["up", "--provider", "existing", *options])
    assert result.exit_code == 1
    assert "the cluster does not answer" in result.output
    assert not root.exists() or list(root.iterdir()) == []


def test_a_kind_cluster_that_never_got_kind_can_be_removed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_OPERATOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kind, "find_program", lambda name: None)
    folder = folder_of("dev")
    folder.create()
    folder.write_settings("kind")
    result = CliRunner().invoke(dev, ["down"])
    assert (result.exit_code, folder.exists()) == (0, False), result.output


def test_a_cluster_keeps_its_provider() -> None:
    folder = folder_of("dev")
    folder.create()
    folder.write_settings("kind")
    result = CliRunner().invoke(dev, ["up", "--provider", "existing", "--postgres-dsn", "x"])
    assert result.exit_code == 1
    assert "has provider kind" in result.output


def test_plain_progress_has_a_line_per_step() -> None:
    stream = io.StringIO()
    progress = progress_for(stream)
    assert isinstance(progress, LineProgress)
    with progress.step("building etcd"):
        progress.note("inside")
    first, second = stream.getvalue().splitlines()
    assert first.endswith("s] building etcd ...")
    assert second.endswith("s] inside")
