"""Builds the cluster's programs from pinned Go modules into the user's cache.

Each program has a key file: the hash of its module and of its flags. It is
built again when that changes, and the Go build cache makes that short.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from queue_operator.devcluster.commands import run
from queue_operator.devcluster.locks import locked_folder
from queue_operator.devcluster.paths import cache_dir
from queue_operator.devcluster.progress import Progress
from queue_operator.devcluster.toolchain import ensure_go

KUBERNETES_VERSION = "v1.37.2"
HELM = "helm.sh/helm/v4/cmd/helm@v4.3.1"
_STRIP = "-s -w"
# Without a version the API server calls itself v0.0.0-master, which clients refuse.
_KUBERNETES_FLAGS = f"{_STRIP} -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"


@dataclass(frozen=True)
class Program:
    """One program and how to build it.

    Attributes:
        path: where it goes, below the folder of programs.
        module: the folder of `tools/cluster` that pins its dependencies.
        package: the Go package, or `package@version` to install without a module.

    """

    path: str
    module: str | None
    package: str
    ldflags: str = _STRIP
    cgo: bool = True

    def key(self, modules: Path) -> str:
        digest = hashlib.sha256(repr((self.package, self.ldflags, self.cgo)).encode())
        if self.module is not None:
            for file in sorted((modules / self.module).iterdir()):
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES_FLAGS)


def _containerd(name: str) -> Program:
    return Program(name, "containerd", f"github.com/containerd/containerd/v2/cmd/{name}", cgo=False)


def _cni(kind: str, name: str) -> Program:
    package = f"github.com/containernetworking/plugins/plugins/{kind}/{name}"
    return Program(f"cni/{name}", "cni", package)


CONTROL_PLANE = (
    *(_kubernetes(f"kube-{name}") for name in ("apiserver", "controller-manager", "scheduler")),
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
)
NODE = (
    *(_kubernetes(name) for name in ("kubelet", "kube-proxy")),
    *(_containerd(name) for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
    _cni("main", "bridge"),
    _cni("main", "loopback"),
    _cni("ipam", "host-local"),
    _cni("meta", "portmap"),
    Program("coredns", "coredns", "github.com/coredns/coredns"),
    # It is the only program inside an image, which has no C library.
    Program("pause", "pause", ".", cgo=False),
)
# Only for machines that have Docker but not kind.
KIND = Program("kind", None, "sigs.k8s.io/kind@v0.33.0")
CLIENT = (Program("helm", None, HELM),)


def binaries_dir() -> Path:
    return cache_dir() / "cluster-bin"


def ensure_programs(programs: Sequence[Program], modules: Path, progress: Progress) -> Path:
    """Builds what is missing or out of date, and returns the folder of programs.

    A first build of everything takes about 15 minutes on two cores; later
    ones take no time.
    """
    folder = binaries_dir()
    with locked_folder(folder):
        return _build_stale(programs, folder, modules, progress)


def _build_stale(
    programs: Sequence[Program], folder: Path, modules: Path, progress: Progress
) -> Path:
    stale = [program for program in programs if not _is_current(program, folder, modules)]
    if not stale:
        return folder
    go = ensure_go(progress)
    progress.note(f"{len(stale)} programs to build from source, once for this machine's cache")
    for number, program in enumerate(stale, 1):
        with progress.step(f"building {program.path} ({number} of {len(stale)})"):
            _build(program, go, folder, modules)
    return folder


def _is_current(program: Program, folder: Path, modules: Path) -> bool:
    key = _key_file(program, folder)
    if not (folder / program.path).exists() or not key.exists():
        return False
    return key.read_text() == program.key(modules)


def _build(program: Program, go: Path, folder: Path, modules: Path) -> None:
    target = folder / program.path
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-trimpath", "-ldflags", program.ldflags]
    environment = {} if program.cgo else {"CGO_ENABLED": "0"}
    if program.module is None:
        run(
            [str(go), "install", *flags, program.package], env={**environment, "GOBIN": str(folder)}
        )
    else:
        command = [str(go), "build", *flags, f"-o={target}", program.package]
        run(command, cwd=modules / program.module, env=environment)
    key = _key_file(program, folder)
    key.parent.mkdir(exist_ok=True)
    key.write_text(program.key(modules))


def _key_file(program: Program, folder: Path) -> Path:
    return folder / ".keys" / program.path.replace("/", "-")
