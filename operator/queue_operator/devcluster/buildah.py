"""buildah with a storage of its own, so that the machine's images are left alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from queue_operator.devcluster.commands import run
from queue_operator.devcluster.errors import CommandFailed
from queue_operator.devcluster.machine import file_system_of

# In chroot isolation a build needs no runtime, no cgroups and no network of its own.
_ISOLATION = {"BUILDAH_ISOLATION": "chroot"}
_DEPENDENCY_STAGE = re.compile(r"(?mi)^FROM\s+\S+\s+AS\s+deps\s*$")
_CERTIFICATES = Path("/etc/ssl/certs")


@dataclass(frozen=True)
class Buildah:
    """The few operations that are needed, on one storage folder."""

    storage: Path

    def has(self, tag: str) -> bool:
        try:
            self._run("inspect", "--type=image", tag)
        except CommandFailed:
            return False
        return True

    def build(
        self, tag: str, context: Path, dockerfile: Path, build_args: Mapping[str, str]
    ) -> None:
        """Builds a Dockerfile; the layers of its stage `deps` come from the storage."""
        command = self.build_command(context, dockerfile, build_args)
        if _DEPENDENCY_STAGE.search(dockerfile.read_text()):
            # A tag of its own keeps the stage from being pruned with the other layers.
            stage = ["--target=deps", f"--tag={tag}-deps"]
            run([*command[:-1], *stage, context], env=self._environment())
        run([*command[:-1], f"--tag={tag}", context], env=self._environment())
        self._run("rmi", "--prune")

    def build_command(
        self, context: Path, dockerfile: Path, build_args: Mapping[str, str]
    ) -> list[str | Path]:
        """The build without a tag; the last word is the context."""
        options = ["--layers", "--pull-never", f"--file={dockerfile}"]
        if _CERTIFICATES.is_dir():
            # The machine may have to trust more than the base does to reach a package index.
            options.append(f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro")
        options += [f"--build-arg={key}={value}" for key, value in sorted(build_args.items())]
        return [*self.command("build", *options), context]

    def commit_root(self, root: Path, tag: str) -> None:
        """An image of one layer, made of the content of a folder."""
        container = self._run("from", "scratch").strip()
        try:
            self._run("add", "--quiet", container, f"{root}/", "/")
            self._run("commit", "--quiet", container, tag)
        finally:
            self._run("rm", container)

    def save(self, tag: str, archive: Path) -> None:
        self._run("push", "--quiet", tag, f"docker-archive:{archive}:{tag}")

    def command(self, *arguments: str) -> list[str | Path]:
        root, runroot = self.storage / "root", self.storage / "run"
        # The mounts of a build that is killed go with a namespace of its own.
        isolate = ("unshare", "--mount", "--")
        return [*isolate, "buildah", "--root", root, "--runroot", runroot, *arguments]

    def _environment(self) -> dict[str, str]:
        # The kernel stacks no overlay on an overlay, which is what a container's root is.
        driver = "vfs" if file_system_of(self.storage) == "overlay" else "overlay"
        return {**_ISOLATION, "STORAGE_DRIVER": driver}

    def _run(self, *arguments: str) -> str:
        return run(self.command(*arguments), env=self._environment())
