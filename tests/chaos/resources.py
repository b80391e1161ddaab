"""The way in through custom resources, and what their statuses say in the end."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from tests.chaos.doors import NAMESPACE, Wish
from tests.controller.kubectl import JOBS, Kubectl, Refused

from queue_operator.controller.credentials import Credentials
from queue_operator.controller.kube import ApiError, KubeClient, collection_path, object_path
from queue_operator.crd.names import API_VERSION, QUEUE_JOB
from queue_operator.testing.history import History, Kind, Log

_PATH: Final = collection_path(QUEUE_JOB.plural, NAMESPACE)
_MERGE_PATCH: Final = "application/merge-patch+json"


class ResourceDoor:
    """Creates QueueJobs. One is acknowledged under its uid, which is its job's id; whoever asks for
    a cancel is told of none. `open` it before, `close` it in the end.
    """

    def __init__(self, kubeconfig: Path, log: Log) -> None:
        self._kube = KubeClient(Credentials.load(str(kubeconfig)))
        self._log = log
        self._uids: dict[str, str] = {}

    async def open(self) -> "ResourceDoor":
        await self._kube.__aenter__()
        return self

    async def submit(self, wish: Wish) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": QUEUE_JOB.kind,
            "metadata": {"name": wish.job_id},
            "spec": spec_of(wish),
        }
        try:
            made = await self._kube.create(_PATH, body)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            # The answer to an earlier try was lost.
            made = await self._kube.get(path_of(wish.job_id))
        self._uids[wish.job_id] = made["metadata"]["uid"]
        self._log.write(Kind.SUBMIT_ACKNOWLEDGED, self._uids[wish.job_id], answer=wish.job_id)

    async def cancel(self, job_id: str, *, force: bool) -> None:
        """By deleting it, if forced and it was taken in: before that there is nothing to cancel."""
        path, uid = path_of(job_id), self._uids[job_id]
        self._log.write(Kind.CANCEL_CALLED, uid)
        found = await self._kube.get(path)
        # Each has a status from the beginning, and a state once it was taken in.
        if force and (found.get("status") or {}).get("state"):
            await self._kube.delete(path, uid)
        else:
            change = {"spec": {"cancel": True}}
            await self._kube.request("PATCH", path, body=change, content_type=_MERGE_PATCH)

    async def close(self) -> None:
        await self._kube.__aexit__()


def path_of(name: str) -> str:
    return object_path(QUEUE_JOB.plural, NAMESPACE, name)


def spec_of(wish: Wish) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "type": wish.type,
        "payload": wish.payload,
        "maxAttempts": wish.max_attempts,
        "backoff": {"strategy": "CONSTANT", "initialDelay": 0},
    }
    if wish.callback_url:
        spec["callbackUrl"] = wish.callback_url
    return spec if wish.timeout_s is None else spec | {"timeout": int(wish.timeout_s)}


async def in_the_end(kubectl: Kubectl, seconds: float) -> list[dict[str, Any]]:
    """All QueueJobs, once they say that they have finished, or have had their time to."""
    patience = f"--timeout={seconds:.0f}s"
    finished = "--for=jsonpath={.status.finished}=true"
    with suppress(Refused):
        await asyncio.to_thread(kubectl, "wait", JOBS, "--all", finished, patience)
    listed = json.loads(await asyncio.to_thread(kubectl, "get", JOBS, "-o", "json"))
    found: list[dict[str, Any]] = listed["items"]
    return found


def untold(objects: Iterable[Mapping[str, Any]], history: History) -> Iterator[str]:
    """QueueJobs whose statuses do not say what became of their jobs."""
    for body in objects:
        uid, status = body["metadata"]["uid"], body.get("status") or {}
        stored = history.jobs.get(uid)
        says = status.get("state"), status.get("finished")
        state = None if stored is None else stored.job.state.value
        if says != (state, True):
            yield f"QueueJob {uid} says of state and finished {says}, and its job is {state}"
