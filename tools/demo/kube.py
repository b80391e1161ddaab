"""kubectl and helm, with the demo's cluster."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo.narrator import DemoFailed
from queue_operator.crd.names import QUEUE_JOB
from queue_operator.devcluster import ClusterInfo


class Kube:
    """Runs kubectl in one namespace; a failing command fails the demo with its output."""

    def __init__(self, cluster: ClusterInfo, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def command(self, *arguments: str) -> list[str]:
        return [
            str(self._cluster.kubectl),
            f"--kubeconfig={self._cluster.kubeconfig}",
            f"--namespace={self.namespace}",
            *arguments,
        ]

    def run(self, *arguments: str, timeout_s: float = 90) -> str:
        return execute(self.command(*arguments), timeout_s=timeout_s)

    def get(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run("get", *arguments, "--output=json"))
        return document

    def apply(self, path: Path | str) -> str:
        return self.run("apply", f"--filename={path}")

    def wait(self, name: str, *, condition: str = "", jsonpath: str = "") -> None:
        """`kubectl wait`, by a condition or by a JSON path with its value."""
        awaited = f"--for=condition={condition}" if condition else f"--for=jsonpath={jsonpath}"
        self.run("wait", awaited, f"{QUEUE_JOB.crd}/{name}", "--timeout=60s")

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.get(f"{QUEUE_JOB.crd}/{name}").get("status", {})
        return status

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """`host:port` on this machine that leads to a port in the cluster."""
        command = self.command("port-forward", target, f":{port}", "--address=127.0.0.1")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline() if process.stdout else ""
                found = re.search(r"127\.0\.0\.1:\d+", line)
                if found is None:
                    raise DemoFailed(f"no way to {target}: kubectl said {line!r}")
                yield found.group()
            finally:
                process.terminate()


def helm(cluster: ClusterInfo, *arguments: str) -> str:
    return execute(
        [str(cluster.helm), f"--kubeconfig={cluster.kubeconfig}", *arguments], timeout_s=180
    )


def execute(command: Sequence[str], *, timeout_s: float = 90, text_in: str | None = None) -> str:
    try:
        finished = subprocess.run(
            command, input=text_in, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as expired:
        raise DemoFailed(f"`{_spoken(command)}` did not end within {timeout_s:g} s") from expired
    if finished.returncode:
        raise DemoFailed(f"`{_spoken(command)}` failed:\n{finished.stderr or finished.stdout}")
    return finished.stdout


def _spoken(command: Sequence[str]) -> str:
    """The command as a person would type it: without paths, and without which cluster."""
    program, *words = (word for word in command if not word.startswith("--kubeconfig="))
    return " ".join([Path(program).name, *words])


def until(probe: Callable[[], bool], what: str, *, timeout_s: float = 60) -> None:
    """Asks again and again until `probe` says yes; fails the demo when the time is over."""
    give_up_at = time.monotonic() + timeout_s
    while not probe():
        if time.monotonic() > give_up_at:
            raise DemoFailed(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.1)
