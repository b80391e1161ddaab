"""The jobs of `examples/01-hello`: each meets its fate, and every word about it is checked
against the API server and against Postgres.
"""

import base64
import json
from typing import Any

from demo.crash import kill_container
from demo.install import HELLO
from demo.kube import Kube, until
from demo.narrator import check, say
from demo.store import Store
from queue_operator.crd.names import QUEUE_JOB
from queue_operator.devcluster import ClusterInfo
from queue_operator.domain.states import JobState


class Fates:
    """Watches the six jobs to their ends."""

    def __init__(self, cluster: ClusterInfo, kube: Kube) -> None:
        self._cluster = cluster
        self._kube = kube
        self._store = Store(cluster.postgres_dsn)

    def submit(self) -> None:
        # A finished job of an earlier run would stay as it is: a spec never runs twice.
        self._kube.run("delete", QUEUE_JOB.crd, "--all", "--wait=true")
        say(self._kube.apply(HELLO).strip())

    def watch(self) -> None:
        self._long_is_cancelled()
        self._hello_completes()
        self._flaky_completes_at_last()
        self._broken_is_dead()
        self._where_runs_in_its_pool()
        # Last, because whatever else the killed worker held would be lost with it.
        self._survivor_is_killed()
        self._survivor_completes_elsewhere()

    def _uid(self, name: str) -> str:
        uid: str = self._kube.get(f"{QUEUE_JOB.crd}/{name}")["metadata"]["uid"]
        return uid

    def _ended(self, name: str, state: JobState) -> dict[str, Any]:
        """The job's final row, once the resource and Postgres agree on `state`."""
        self._kube.wait(name, jsonpath=f"{{.status.state}}={state}")
        uid = self._uid(name)
        row = self._store.ended(uid)
        found = row["state"] if row else "no final row"
        seen = f"job {uid}" if found == state else f"{found} in Postgres"
        check(f"{name} is {state} on the API server and in Postgres", found == state, seen)
        return row or {}

    def _hello_completes(self) -> None:
        self._kube.wait("hello", condition="Complete")
        row = self._ended("hello", JobState.COMPLETED)
        check("hello answered at its first attempt", row["attempt"] == 1, _text(row["result"]))

    def _flaky_completes_at_last(self) -> None:
        row = self._ended("flaky", JobState.COMPLETED)
        events = [attempt["event"] for attempt in self._store.attempts(self._uid("flaky"))]
        check(
            "flaky failed twice and completed after its backoff",
            events == ["FAIL", "FAIL", "COMPLETE"] and row["retry_count"] == 2,
            ", ".join(events),
        )

    def _broken_is_dead(self) -> None:
        row = self._ended("broken", JobState.DEAD_LETTER)
        conditions = _conditions(self._kube.status("broken"))
        check(
            "broken used up its attempts and its resource says Failed",
            conditions.get("Failed") == "True",
            f"{row['attempt']} attempts",
        )

    def _long_is_cancelled(self) -> None:
        uid = self._uid("long")
        until(lambda: self._store.holder(uid) is not None, "long starts to run")
        check("long runs", True, (self._store.holder(uid) or {})["worker_name"])
        patch = '--patch={"spec":{"cancel":true}}'
        self._kube.run("patch", f"{QUEUE_JOB.crd}/long", "--type=merge", patch)
        self._ended("long", JobState.STOPPED)
        status = self._kube.status("long")
        check("long was cancelled while it ran", status["phase"] == "CANCELLED", status["phase"])

    def _where_runs_in_its_pool(self) -> None:
        row = self._ended("where", JobState.COMPLETED)
        worker = row["worker_name"]
        check("where ran on a worker of pool b, and nowhere else", "workers-b" in worker, worker)
        every = {attempt["worker_name"] for attempt in self._store.attempts(self._uid("where"))}
        check("its history names no other worker", every == {worker}, ", ".join(sorted(every)))

    def _survivor_is_killed(self) -> None:
        uid = self._uid("survivor")
        until(lambda: self._store.holder(uid) is not None, "survivor starts to run")
        self._before = self._store.holder(uid) or {}
        killed = kill_container(self._cluster, self._kube.namespace, self._before["worker_name"])
        after = self._store.holder(uid) or {}
        check(
            "SIGKILL for the container that held survivor",
            killed and after.get("token", self._before["token"]) == self._before["token"],
            self._before["worker_name"],
        )

    def _survivor_completes_elsewhere(self) -> None:
        row = self._ended("survivor", JobState.COMPLETED)
        attempts = self._store.attempts(self._uid("survivor"))
        lost = [a for a in attempts if a["token"] == self._before["token"]]
        check(
            "the killed session lost the job",
            [a["event"] for a in lost] == ["LOSE"],
            ", ".join(a["event"] for a in attempts),
        )
        check(
            "survivor completed in another session, under a new token",
            row["assignee_id"] != self._before["assignee_id"]
            and row["token"] != self._before["token"],
            row["worker_name"],
        )


def _conditions(status: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status.get("conditions", [])}


def _text(result: bytes | None) -> str:
    try:
        return json.dumps(json.loads(result or b"null"))
    except ValueError:
        return base64.b64encode(result or b"").decode()
