"""What Prometheus' own discovery in Kubernetes would find: Debian's is built without it. The rules
that choose among the targets, and label them, are Prometheus' to carry out.
"""

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from queue_operator.devcluster import ClusterInfo

Object = dict[str, Any]
_EVERY_S: Final = 1.0
_PREFIX: Final = "__meta_kubernetes"
_SERVICE: Final = "kubernetes.io/service-name"


class Discovery:
    """A file of targets for each role, kept up to date by a thread."""

    def __init__(self, cluster: ClusterInfo, folder: Path) -> None:
        self._command = [str(cluster.kubectl), f"--kubeconfig={cluster.kubeconfig}", "get"]
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="discovery")

    def file(self, role: str) -> Path:
        return self._folder / f"{role}.json"

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            listed = self._list()
            self._write("pod", _pods, listed)
            self._write("endpointslice", _endpoints, listed)

    def _list(self) -> list[Object]:
        """Nothing while the API server does not answer."""
        kinds = "pods,services,endpointslices"
        done = subprocess.run(
            [*self._command, kinds, "--all-namespaces", "--output=json"],
            capture_output=True,
            text=True,
        )
        found: list[Object] = json.loads(done.stdout)["items"] if done.returncode == 0 else []
        return found

    def _write(
        self, role: str, find: Callable[[list[Object]], Iterator[Object]], listed: list[Object]
    ) -> None:
        # Whole or not at all: Prometheus reads it when it changes.
        new = self.file(role).with_suffix(".new")
        new.write_text(json.dumps(list(find(listed))))
        new.rename(self.file(role))


def _of_kind(listed: list[Object], kind: str) -> Iterator[Object]:
    return (one for one in listed if one["kind"] == kind)


def _pods(listed: list[Object]) -> Iterator[Object]:
    """Each port of each container."""
    for pod in _of_kind(listed, "Pod"):
        ip = pod["status"].get("podIP")
        for container in pod["spec"]["containers"] if ip else ():
            for port in container.get("ports", ()):
                labels = {
                    **_about_pod(pod),
                    f"{_PREFIX}_pod_container_name": container["name"],
                    f"{_PREFIX}_pod_container_port_name": port.get("name", ""),
                    **_labels("pod", pod),
                }
                yield {"targets": [f"{ip}:{port['containerPort']}"], "labels": labels}


def _endpoints(listed: list[Object]) -> Iterator[Object]:
    """Each port of each address of each Service."""
    services = {_name(one): one for one in _of_kind(listed, "Service")}
    pods = {_name(one): one for one in _of_kind(listed, "Pod")}
    for part in _of_kind(listed, "EndpointSlice"):
        namespace = part["metadata"]["namespace"]
        service = services.get((namespace, part["metadata"]["labels"].get(_SERVICE, "")))
        if service is None:
            continue
        for endpoint in part.get("endpoints") or ():
            target = endpoint.get("targetRef", {})
            pod = pods.get((namespace, target.get("name", "")))
            labels = {
                f"{_PREFIX}_namespace": namespace,
                f"{_PREFIX}_service_name": service["metadata"]["name"],
                f"{_PREFIX}_endpointslice_address_target_kind": target.get("kind", ""),
                f"{_PREFIX}_endpointslice_address_target_name": target.get("name", ""),
                **_labels("service", service),
                **(_about_pod(pod) if pod else {}),
            }
            for port in part["ports"]:
                named = {**labels, f"{_PREFIX}_endpointslice_port_name": port["name"]}
                targets = [f"{address}:{port['port']}" for address in endpoint["addresses"]]
                yield {"targets": targets, "labels": named}


def _name(one: Object) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def _about_pod(pod: Object) -> dict[str, str]:
    return {
        f"{_PREFIX}_namespace": pod["metadata"]["namespace"],
        f"{_PREFIX}_pod_name": pod["metadata"]["name"],
        f"{_PREFIX}_pod_phase": pod["status"]["phase"],
    }


def _labels(what: str, one: Object) -> dict[str, str]:
    return {
        f"{_PREFIX}_{what}_label_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}": value
        for name, value in one["metadata"].get("labels", {}).items()
    }
