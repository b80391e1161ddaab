"""The project's images: built by buildah without a daemon, or by Docker where that runs.

An archive's name carries the hash of everything that it was built from, so
the same content is never built twice.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from queue_operator.devcluster import baseimage
from queue_operator.devcluster.buildah import Buildah
from queue_operator.devcluster.commands import run, succeeds
from queue_operator.devcluster.errors import ToolMissing
from queue_operator.devcluster.locks import locked_folder
from queue_operator.devcluster.paths import cache_dir, checkout_root, is_root
from queue_operator.devcluster.progress import Progress, SilentProgress

# What the project's own Dockerfile copies; a change elsewhere needs no new image.
PROJECT_INPUTS = ("Dockerfile", ".dockerignore", "requirements-server.lock", "pyproject.toml")
PROJECT_FOLDERS = ("operator",)
_IGNORED = {"__pycache__", ".mypy_cache", ".ruff_cache"}


def build_image(
    tag: str,
    *,
    context: Path | None = None,
    dockerfile: Path | None = None,
    build_args: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Builds an image and returns it as a docker-archive; reuses an archive of equal content.

    Args:
        tag: the name that pods refer to, such as `queue-operator:dev`.
        context: the folder to build from; the checkout if omitted.
        dockerfile: `Dockerfile` of the context if omitted. It may be `FROM` another tag
            that this function built before; a change of that one rebuilds this one.
        build_args: `BASE_IMAGE` defaults to a Debian base made by debootstrap, since no
            registry is asked.
        progress: told of each step; silent if omitted.

    Raises:
        ToolMissing: there is neither buildah and root nor a Docker daemon.
        CommandFailed: the build failed; the message carries its output.

    """
    progress = progress or SilentProgress()
    root = checkout_root()
    context = (context or root).resolve()
    dockerfile = (dockerfile or context / "Dockerfile").resolve()
    arguments = {"VERSION": project_version(root), **(build_args or {})}
    inputs = project_inputs(root) if context == root else context_inputs(context)
    digest = content_hash(context, [dockerfile, *inputs], arguments, _local_bases(dockerfile))
    archive = archive_path(tag, digest)
    with locked_folder(images_dir()):
        if not archive.exists():
            _build(tag, context, dockerfile, arguments, archive, progress)
            _forget_older(tag, archive)
    return archive


def base_image_archive(progress: Progress | None = None) -> Path:
    """The Debian base with Python as a docker-archive; its tag is `baseimage.TAG`."""
    archive = archive_path(baseimage.TAG, baseimage.SUITE)
    with locked_folder(images_dir()):
        if not archive.exists():
            builder = Buildah(images_dir() / "storage")
            partial = archive.with_suffix(".partial")
            partial.unlink(missing_ok=True)
            builder.save(baseimage.ensure(builder, progress or SilentProgress()), partial)
            partial.replace(archive)
    return archive


def images_dir() -> Path:
    return cache_dir() / "images"


def archive_path(tag: str, digest: str) -> Path:
    return images_dir() / f"{_file_name(tag)}@{digest[:20]}.tar"


def project_version(root: Path) -> str:
    version: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return version


def project_inputs(root: Path) -> list[Path]:
    """Every file that can change the project's image."""
    named = [root / name for name in PROJECT_INPUTS if (root / name).exists()]
    return [*named, *(path for folder in PROJECT_FOLDERS for path in context_inputs(root / folder))]


def context_inputs(folder: Path) -> list[Path]:
    """Every file below a folder that is not a by-product of running Python."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and not any(part in _IGNORED or part.endswith(".egg-info") for part in path.parts[:-1])
    )


def content_hash(
    context: Path,
    inputs: Iterable[Path],
    build_args: Mapping[str, str],
    bases: Iterable[str] = (),
) -> str:
    """A hash of names and contents; where the context lies does not matter."""
    digest = hashlib.sha256()
    for path in inputs:
        name = path.relative_to(context) if path.is_relative_to(context) else path.name
        for part in (str(name).encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "big") + part)
    for item in (*sorted(build_args.items()), *bases):
        digest.update(repr(item).encode())
    return digest.hexdigest()


def _local_bases(dockerfile: Path) -> list[str]:
    """The archives of those base images that were built here."""
    references = re.findall(r"(?mi)^(?:FROM|ARG\s+\w+=)\s*(\S+)", dockerfile.read_text())
    return sorted(archive.name for tag in references for archive in _archives(tag))


def _build(
    tag: str,
    context: Path,
    dockerfile: Path,
    build_args: Mapping[str, str],
    archive: Path,
    progress: Progress,
) -> None:
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    if is_root():
        builder = Buildah(images_dir() / "storage")
        arguments = {"BASE_IMAGE": baseimage.ensure(builder, progress), **build_args}
        with progress.step(f"building image {tag}"):
            builder.build(tag, context, dockerfile, arguments)
            builder.save(tag, partial)
    elif succeeds(["docker", "info"], timeout_s=10):
        with progress.step(f"building image {tag} with Docker"):
            run(docker_build_command(tag, context, dockerfile, build_args))
            run(["docker", "save", "--output", partial, tag])
    else:
        raise ToolMissing("an image builder", "run as root, for buildah, or start Docker")
    partial.replace(archive)


def docker_build_command(
    tag: str, context: Path, dockerfile: Path, build_args: Mapping[str, str]
) -> list[str | Path]:
    arguments = [f"--build-arg={key}={value}" for key, value in sorted(build_args.items())]
    return ["docker", "build", f"--tag={tag}", f"--file={dockerfile}", *arguments, context]


def _forget_older(tag: str, current: Path) -> None:
    for archive in _archives(tag):
        if archive != current:
            archive.unlink()


def _archives(tag: str) -> Iterator[Path]:
    yield from sorted(images_dir().glob(f"{_file_name(tag)}@*.tar"))


def _file_name(tag: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", tag)
