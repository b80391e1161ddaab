"""kubectl, as a user types it."""

import json
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from queue_operator.crd.names import QUEUE_JOB, QUEUE_WORKER
from queue_operator.devcluster import ClusterInfo

CRDS: Final = Path(__file__).parents[2] / "crds"
_INITIALIZING: Final = "storage is (re)initializing"
_TRIES: Final = 50


class Refused(Exception):
    """kubectl failed; the text is what it printed."""


class _NotYet(Refused):
    """The API server says that it will answer in a moment."""


@dataclass(frozen=True)
class Kubectl:
    binary: Path
    kubeconfig: Path
    namespace: str

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """What it prints. Raises Refused. An API server that was given another definition a moment
        ago is asked again, as it says.
        """
        for _ in range(_TRIES - 1):
            with suppress(_NotYet):
                return self._once(*arguments, stdin=stdin)
        return self._once(*arguments, stdin=stdin)

    def _once(self, *arguments: str, stdin: str | None) -> str:
        done = subprocess.run(
            [
                str(self.binary),
                "--kubeconfig",
                str(self.kubeconfig),
                "--namespace",
                self.namespace,
                *arguments,
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            told = done.stdout + done.stderr
            raise _NotYet(told) if _INITIALIZING in told else Refused(told)
        return done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def apply(self, *objects: dict[str, Any]) -> None:
        self("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))

    def apply_job(self, job_name: str, **spec: Any) -> str:
        """Applies a QueueJob and gives its uid."""
        self.apply(queue_job(job_name, **spec))
        return str(self.get(JOBS, job_name)["metadata"]["uid"])

    def wait(self, what: str, *objects: str, timeout_s: int = 30) -> None:
        self("wait", f"--for={what}", f"--timeout={timeout_s}s", *objects)


def install(cluster: ClusterInfo, namespace: str = "default") -> Kubectl:
    """Makes our resources known to a cluster."""
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, namespace)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    for names in (QUEUE_JOB, QUEUE_WORKER):
        kubectl.wait("condition=Established", f"crd/{names.crd}")
    return kubectl


JOBS = "queuejobs.queueoperator.dev"
WORKERS = "queueworkers.queueoperator.dev"


def queue_job(job_name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "queueoperator.dev/v1alpha1",
        "kind": "QueueJob",
        "metadata": {"name": job_name},
        "spec": {"type": "echo", "payload": {"n": 1}} | spec,
    }
