"""The image of a pod's sandbox: one static program and nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

IMAGE = "localhost/pause:1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def pause_archive(program: Path, folder: Path) -> Path:
    """Writes the image as a docker-archive into a folder, unless it is there."""
    content = program.read_bytes()
    archive = folder / f"pause@{hashlib.sha256(content).hexdigest()[:20]}.tar"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(".partial")
        _write_image(partial, "pause", content)
        partial.replace(archive)
    return archive


def _write_image(target: Path, name: str, content: bytes) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, name, content, mode=0o755)
    layer = buffer.getvalue()
    machine = platform.machine()
    configuration = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(target, mode="w") as tar:
        _add(tar, "config.json", json.dumps(configuration).encode())
        _add(tar, "layer.tar", layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
