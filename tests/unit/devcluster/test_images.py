"""When an image is built anew, and with which commands."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from queue_operator.devcluster import images
from queue_operator.devcluster.baseimage import debootstrap_command
from queue_operator.devcluster.binaries import CONTROL_PLANE, NODE, Program
from queue_operator.devcluster.buildah import Buildah
from queue_operator.devcluster.images import (
    archive_path,
    content_hash,
    context_inputs,
    docker_build_command,
    project_inputs,
    project_version,
)
from queue_operator.devcluster.kind import cluster_configuration
from queue_operator.devcluster.paths import checkout_root
from queue_operator.devcluster.pause import IMAGE, pause_archive


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    (folder / "package").mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM scratch\n")
    (folder / "package" / "module.py").write_text("x = 1\n")
    return folder


def digest(context: Path, **build_args: str) -> str:
    return content_hash(context, context_inputs(context), build_args)


def test_the_same_content_elsewhere_has_the_same_hash(context: Path, tmp_path: Path) -> None:
    before = digest(context)
    moved = context.rename(tmp_path / "moved")
    assert digest(moved) == before


def test_content_names_and_arguments_change_the_hash(context: Path) -> None:
    seen = [digest(context), digest(context, VERSION="1")]
    module = context / "package" / "module.py"
    module.write_text("x = 2\n")
    seen.append(digest(context))
    module.rename(module.with_name("other.py"))
    seen.append(digest(context))
    assert len(set(seen)) == 4


def test_what_python_leaves_behind_does_not_change_the_hash(context: Path) -> None:
    before = digest(context)
    (context / "package" / "__pycache__").mkdir()
    (context / "package" / "__pycache__" / "module.cpython-311.pyc").write_bytes(b"x")
    (context / "package.egg-info").mkdir()
    (context / "package.egg-info" / "PKG-INFO").write_text("x")
    assert digest(context) == before


def test_a_new_base_image_changes_the_hash(
    context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_OPERATOR_CACHE_DIR", str(tmp_path / "cache"))
    dockerfile = context / "Dockerfile"
    dockerfile.write_text("ARG BASE=queue-operator:dev\nFROM ${BASE}\n")
    archive = archive_path("queue-operator:dev", "0123456789abcdef0123456789")
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert images._local_bases(dockerfile) == [archive.name]
    assert archive.name == "queue-operator_dev@0123456789abcdef0123.tar"


def test_the_projects_image_depends_on_its_sources_only() -> None:
    root = checkout_root()
    names = {str(path.relative_to(root)) for path in project_inputs(root)}
    assert {"Dockerfile", "pyproject.toml", "requirements-server.lock"} <= names
    assert "operator/queue_operator/devcluster/images.py" in names
    assert not any(name.startswith(("tests/", "docs/")) for name in names)
    assert project_version(root).count(".") == 2


def test_buildah_builds_from_its_own_storage_and_pulls_nothing() -> None:
    builder = Buildah(Path("/cache/storage"))
    arguments = {"B": "2", "A": "1"}
    command = builder.build_command(Path("/src"), Path("/src/Dockerfile"), arguments)
    words = [str(word) for word in command]
    assert words[:9] == [
        "unshare", "--mount", "--",
        "buildah", "--root", "/cache/storage/root", "--runroot", "/cache/storage/run", "build",
    ]  # fmt: skip
    assert {"--pull-never", "--layers"} <= set(words)
    assert words[-3:] == ["--build-arg=A=1", "--build-arg=B=2", "/src"]


def test_docker_builds_the_same_dockerfile() -> None:
    command = docker_build_command("t:1", Path("/src"), Path("/src/Dockerfile"), {"A": "1"})
    assert [str(word) for word in command] == [
        "docker", "build", "--tag=t:1", "--file=/src/Dockerfile", "--build-arg=A=1", "/src",
    ]  # fmt: skip


def test_the_base_has_python_and_little_else() -> None:
    command = [str(word) for word in debootstrap_command(Path("/root"))]
    assert command == [
        "debootstrap",
        "--variant=minbase",
        "--include=python3,python3-venv,ca-certificates",
        "bookworm",
        "/root",
    ]


def test_pause_archive_is_an_image_that_containerd_can_verify(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"program")
    archive = pause_archive(program, tmp_path / "images")
    with tarfile.open(archive) as tar:
        content = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    manifest = json.loads(content["manifest.json"])[0]
    configuration = json.loads(content[manifest["Config"]])
    layer = hashlib.sha256(content[manifest["Layers"][0]]).hexdigest()
    assert manifest["RepoTags"] == [IMAGE]
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{layer}"]
    assert pause_archive(program, tmp_path / "images") == archive


def test_a_programs_key_follows_its_module_and_flags(tmp_path: Path) -> None:
    (tmp_path / "module").mkdir()
    pins = tmp_path / "module" / "go.sum"
    pins.write_text("a")
    program = Program("p", "module", "example.org/p")
    first = program.key(tmp_path)
    assert Program("p", "module", "example.org/p", cgo=False).key(tmp_path) != first
    assert Program("p", "module", "example.org/p", ldflags="").key(tmp_path) != first
    pins.write_text("b")
    assert program.key(tmp_path) != first


@pytest.mark.parametrize("program", [*CONTROL_PLANE, *NODE], ids=lambda program: program.path)
def test_every_program_has_a_pinned_module(program: Program) -> None:
    modules = checkout_root() / "tools" / "cluster"
    assert program.module is not None
    assert (modules / program.module / "go.mod").exists()


def test_kind_gets_one_node() -> None:
    assert cluster_configuration()["nodes"] == [{"role": "control-plane"}]
