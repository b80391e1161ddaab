"""The state folder: what it stores, and the locks on it."""

import subprocess
import sys
from pathlib import Path

import pytest

from queue_operator.devcluster.errors import ClusterNotFound, DevClusterError
from queue_operator.devcluster.existing import ExistingOptions
from queue_operator.devcluster.locks import locked_folder
from queue_operator.devcluster.network import AddressPlan
from queue_operator.devcluster.paths import cache_dir, checkout_root, state_root
from queue_operator.devcluster.state import (
    ClusterInfo,
    StateFolder,
    all_folders,
    existing_folder,
    folder_of,
    slots_locked,
)

INFO = ClusterInfo(
    name="dev",
    provider="local",
    kubeconfig=Path("/state/admin.yaml"),
    kubectl=Path("/bin/kubectl"),
    helm=None,
    postgres_dsn="postgresql://owner@10.99.0.1/queue_operator",
    postgres_admin_dsn="postgresql://postgres@10.99.0.1/postgres",
    host_address="10.99.0.1",
    node_address="10.99.0.2",
    has_node=True,
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUEUE_OPERATOR_DEV_STATE_DIR", str(tmp_path / "clusters"))
    return tmp_path / "clusters"


def test_addresses_of_databases_are_not_shown() -> None:
    options = ExistingOptions(postgres_dsn=INFO.postgres_dsn)
    assert "postgresql://" not in repr(INFO) + repr(options)


def test_info_survives_the_disk(root: Path) -> None:
    folder = folder_of("dev")
    folder.create()
    assert folder.info() is None
    folder.write_info(INFO)
    assert existing_folder("dev").info() == INFO
    assert (folder.path / "info.json").stat().st_mode & 0o777 == 0o600


def test_secrets_are_for_their_owner_only(root: Path) -> None:
    folder = folder_of("dev")
    folder.create()
    assert folder.pki.stat().st_mode & 0o777 == 0o700
    assert folder.kubeconfig("admin").parent.stat().st_mode & 0o777 == 0o700


def test_plan_comes_from_the_recorded_slot(root: Path) -> None:
    folder = folder_of("dev")
    folder.create()
    assert folder.plan() is None
    folder.write_settings("control-plane", slot=5, loopback=True)
    assert folder.plan() == AddressPlan(5, loopback=True)


def test_slots_of_all_clusters_are_taken(root: Path) -> None:
    for slot, name in enumerate(("one", "two")):
        folder_of(name).create()
        folder_of(name).write_settings("local", slot=slot, loopback=False)
    folder_of("empty").create()
    with slots_locked() as taken:
        assert taken == {0, 1}
    assert [folder.name for folder in all_folders()] == ["empty", "one", "two"]


@pytest.mark.parametrize("name", ["", "Dev", "-dev", "a/b", "..", "a" * 31])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(DevClusterError, match=r"name: .* is not a cluster name"):
        folder_of(name)


def test_missing_cluster_says_how_to_start_it(root: Path) -> None:
    with pytest.raises(ClusterNotFound, match="queue-operator dev up --name gone"):
        existing_folder("gone")


def test_a_locked_folder_is_held_against_other_processes(tmp_path: Path) -> None:
    attempt = (
        "import fcntl, os, sys; d = os.open(sys.argv[1], os.O_RDONLY);"
        "fcntl.flock(d, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    command = [sys.executable, "-c", attempt, str(tmp_path)]
    with locked_folder(tmp_path):
        assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_folder_may_be_removed_under_the_lock(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "dev")
    with folder.locked():
        folder.remove()
    assert not folder.exists()
    with folder.locked():
        assert folder.exists()


def test_folders_follow_the_environment(tmp_path: Path) -> None:
    assert state_root({}, root=True) == Path("/var/lib/queue-operator-dev")
    assert state_root({"XDG_STATE_HOME": "/x"}, root=False) == Path("/x/queue-operator/dev")
    assert state_root({"HOME": "/h"}, root=False) == Path("/h/.local/state/queue-operator/dev")
    assert state_root({"QUEUE_OPERATOR_DEV_STATE_DIR": "/s"}, root=True) == Path("/s")
    assert cache_dir({"HOME": "/h"}) == Path("/h/.cache/queue-operator")
    assert cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/queue-operator")
    assert cache_dir({"QUEUE_OPERATOR_CACHE_DIR": "/q"}) == Path("/q")


def test_the_checkout_is_found_upwards(tmp_path: Path) -> None:
    assert (checkout_root() / "pyproject.toml").exists()
    with pytest.raises(DevClusterError, match="clone the repository"):
        checkout_root(tmp_path)
