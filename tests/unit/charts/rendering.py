"""Renders the charts with Helm itself, and reads what comes out."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from queue_operator.devcluster import progress_for
from queue_operator.devcluster.binaries import CLIENT, ensure_programs

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
CHARTS = ROOT / "charts"
RELEASE = "queue-operator"
NAMESPACE = "queue-system"


@cache
def helm_program() -> str:
    """The pinned Helm of the development cluster, built if this machine has none yet."""
    modules = ROOT / "tools" / "cluster"
    folder = ensure_programs(CLIENT, modules, progress_for(sys.stderr))
    return str(folder / "helm")


def helm(*arguments: str, values: Manifest | None = None) -> subprocess.CompletedProcess[str]:
    """Runs Helm; `values` go in as a values file, so that no shell or --set rule touches them."""
    command = [helm_program(), *arguments]
    if values is not None:
        command.append("--values=-")
    text = yaml.safe_dump(values or {})
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def rendered(
    chart: str,
    values: Manifest,
    *options: str,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
) -> list[Manifest]:
    """The manifests of a release. Raises AssertionError with Helm's words if it refuses."""
    return list(documents(template(chart, values, *options, release=release, namespace=namespace)))


def template(
    chart: str,
    values: Manifest,
    *options: str,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
) -> str:
    done = helm(
        "template",
        release,
        str(CHARTS / chart),
        f"--namespace={namespace}",
        *options,
        values=values,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(chart: str, values: Manifest) -> str:
    """What Helm says against values that it must not take."""
    done = helm("template", RELEASE, str(CHARTS / chart), values=values)
    assert done.returncode != 0, f"{chart} took {values}"
    return done.stderr


def documents(text: str) -> Iterator[Manifest]:
    return (document for document in yaml.safe_load_all(text) if document)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = of_kind(manifests, kind)
    return found


def pod_spec(manifests: list[Manifest]) -> Manifest:
    spec: Manifest = only(manifests, "Deployment")["spec"]["template"]["spec"]
    return spec


def containers(spec: Manifest) -> list[Manifest]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def environment(container: Manifest) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}
