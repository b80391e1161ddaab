"""What was not made here is neither used nor removed, and is named."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from queue_operator.cli.dev import dev
from queue_operator.devcluster import DevClusterError, Postgres, kind, toolchain
from queue_operator.devcluster.errors import NotOurs
from queue_operator.devcluster.progress import SilentProgress
from queue_operator.devcluster.state import MARK, StateFolder, all_folders, folder_of, slots_locked


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, named as the one of all clusters."""
    made = tmp_path / "projects"
    made.mkdir()
    monkeypatch.setenv("QUEUE_OPERATOR_DEV_STATE_DIR", str(made))
    return made


@pytest.fixture
def project(root: Path) -> Path:
    """Somebody's work, which has the name of a cluster."""
    made = root / "dev"
    made.mkdir()
    (made / "thesis.txt").write_text("years of work")
    return made


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(dev, arguments)


@pytest.mark.parametrize(
    "arguments",
    [["up", "--provider", "control-plane"], ["up"], ["down"], ["status", "--name", "dev"]],
)
def test_a_folder_of_somebody_elses_is_left_alone(project: Path, arguments: list[str]) -> None:
    done = typed(*arguments)
    assert done.exit_code == 1
    assert f"{project} was not made by `queue-operator dev`, and is left alone" in done.stderr
    assert "choose another --name" in done.stderr
    assert [path.name for path in project.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("content", ["not JSON", "[]", '{"name": "dev"}'])
def test_a_file_that_happens_to_have_the_name_of_ours_is_no_proof(
    project: Path, content: str
) -> None:
    (project / "cluster.json").write_text(content)
    assert typed("down").exit_code == 1
    assert (project / "thesis.txt").exists()


def test_an_empty_folder_of_somebody_elses_is_left_alone_too(root: Path) -> None:
    (root / "dev").mkdir()
    with pytest.raises(NotOurs), folder_of("dev").locked():
        pass
    assert (root / "dev").exists()


def test_other_folders_are_no_clusters(project: Path, root: Path) -> None:
    (root / "a-file").touch()
    folder_of("mine").create()
    assert [folder.name for folder in all_folders()] == ["mine"]
    assert json.loads(typed("status", "-o", "json").stdout)[0]["name"] == "mine"
    with slots_locked() as taken:
        assert taken == set()


def test_a_cluster_of_an_earlier_release_is_still_ours(root: Path) -> None:
    folder = StateFolder(root / "dev")
    folder.create()
    folder.write_settings("control-plane", slot=63, loopback=True)
    (folder.path / MARK).unlink()
    assert typed("down").exit_code == 0
    assert not folder.exists()


def test_the_folder_that_the_user_named_stays_when_the_last_cluster_goes(root: Path) -> None:
    folder_of("dev").create()
    assert typed("down").exit_code == 0
    assert root.exists()
    assert list(root.iterdir()) == []


def test_a_database_of_somebody_elses_is_neither_taken_up_nor_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "dev"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "PG_VERSION").write_text("18\n")
    server = Postgres(folder, "127.0.0.1", 1)
    with pytest.raises(NotOurs, match="name another folder, or move it away"):
        server.start()
    server.stop()
    server.kill()
    assert (folder / "data" / "PG_VERSION").read_text() == "18\n"


class Docker:
    """Stand-ins for Docker and kind, of which this machine has neither: they note how they are
    called, and kind keeps the names of its clusters in a file.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._clusters, self._log = folder / "clusters", folder / "log"
        self._clusters.touch()
        self._log.touch()
        programs = folder / "bin"
        programs.mkdir()
        self._write(programs / "docker", "exit 1")
        self._write(
            programs / "kind",
            f'echo "$1 $2 $3" >> {self._log}\n'
            f'case "$1 $2" in "get clusters") cat {self._clusters} ;;\n'
            f'"delete cluster") sed -i "/^${{3#--name=}}$/d" {self._clusters} ;; esac',
        )
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.setattr(toolchain, "SYSTEM_PATH", "")

    def has(self, *names: str) -> None:
        self._clusters.write_text("".join(f"{name}\n" for name in names))

    def clusters(self) -> list[str]:
        return self._clusters.read_text().split()

    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()

    def _write(self, path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    return Docker(tmp_path, monkeypatch)


def test_a_kind_cluster_has_a_name_that_nobody_elses_has(
    docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "docker_answers", lambda: True)
    docker.has("dev")
    folder = folder_of("dev")
    # It ends when it asks Docker for the network, which is after the cluster was made.
    with pytest.raises(DevClusterError):
        kind.KindCluster(folder).up(SilentProgress())
    name = kind.kind_name(folder)
    assert name.startswith("dev-")
    assert len(name) == len("dev-") + 6
    assert [call for call in docker.calls() if call.startswith("create")] == [
        f"create cluster --name={name}"
    ]
    docker.has("dev", name)
    assert typed("down").exit_code == 0
    assert docker.clusters() == ["dev"]
    assert not folder.exists()


def test_a_kind_cluster_that_nothing_says_is_ours_is_left_alone(docker: Docker) -> None:
    docker.has("dev", "other")
    folder = folder_of("dev")
    folder.create()
    folder.write_settings("kind")
    done = typed("down")
    assert done.exit_code == 1
    assert (
        "nothing says that the kind cluster 'dev' was made by `queue-operator dev`" in done.stderr
    )
    assert "kind delete cluster --name dev" in done.stderr
    assert docker.clusters() == ["dev", "other"]
    assert folder.exists()
    # Once the user has decided, the rest goes.
    docker.has("other")
    assert typed("down").exit_code == 0
    assert docker.clusters() == ["other"]


def test_a_kind_cluster_of_an_earlier_release_gets_no_image_and_is_named(
    docker: Docker, tmp_path: Path
) -> None:
    docker.has("dev")
    folder = folder_of("dev")
    folder.create()
    folder.write_settings("kind")
    with pytest.raises(NotOurs, match="kind delete cluster --name dev"):
        kind.KindCluster(folder).load_image(tmp_path / "image.tar")
