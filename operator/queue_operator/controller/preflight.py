"""What must hold before the controller starts, each with what to do when it does not."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from queue_operator.controller.kube import API, ApiError, KubeClient
from queue_operator.controller.pacing import backoff_s
from queue_operator.crd import manifest
from queue_operator.crd.names import QUEUE_JOB, QUEUE_WORKER
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError, Unavailable

logger = logging.getLogger(__name__)

INSTALL: Final = "kubectl apply --server-side -f crds/"

_NAMESPACE: Final = "/api/v1/namespaces/kube-system"
_CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class NotReady(QueueError):
    """The cluster lacks something; the message says which command helps."""

    code = "CLUSTER_NOT_READY"


async def await_cluster(kube: KubeClient, clock: Clock) -> str:
    """The cluster's identity: the uid of kube-system. Waits as long as it takes for the API server
    and for what it lacks, and says each time what for, once.
    """
    failures, said = 0, ""
    while True:
        try:
            return await check_cluster(kube)
        except (NotReady, Unavailable) as error:
            failures += 1
            if str(error) != said:
                said = str(error)
                logger.error("custom resources are not served yet: %s", error)
            await clock.sleep(backoff_s(failures))


async def check_cluster(kube: KubeClient) -> str:
    """The same at once. Raises NotReady, or Unavailable when the API server does not answer."""
    try:
        await _check_resources(kube)
        return await _cluster_uid(kube)
    except ApiError as error:
        if error.retryable:
            raise Unavailable(f"{error}; check KUBECONFIG and the network") from error
        raise NotReady(str(error)) from error


async def _check_resources(kube: KubeClient) -> None:
    try:
        served = await kube.get(API)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        served = {"resources": []}
    names = {resource["name"] for resource in served["resources"]}
    missing = {QUEUE_JOB.plural, QUEUE_WORKER.plural} - names
    if missing:
        raise NotReady(
            f"the cluster does not serve {' and '.join(sorted(missing))}; install them: {INSTALL}"
        )
    for wanted in (manifest.queue_job_crd(), manifest.queue_worker_crd()):
        await _check_schema(kube, wanted)


async def _check_schema(kube: KubeClient, wanted: Mapping[str, Any]) -> None:
    """An older schema would drop what is written. Without the right to read it, writing
    tells, since it is strict.
    """
    name = wanted["metadata"]["name"]
    try:
        found = await kube.get(f"{_CRD}/{name}")
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return
        raise
    lacking = _fields(wanted) - _fields(found)
    if lacking:
        raise NotReady(
            f"{name} in the cluster is older than this operator and lacks "
            f"{', '.join(sorted(lacking))}; upgrade it: {INSTALL}"
        )


def _fields(crd: Mapping[str, Any]) -> set[str]:
    fields: set[str] = set()
    for version in crd["spec"]["versions"]:
        _collect(version["schema"]["openAPIV3Schema"], version["name"], fields)
    return fields


def _collect(schema: Mapping[str, Any], path: str, into: set[str]) -> None:
    for name, child in (schema.get("properties") or {}).items():
        into.add(f"{path}.{name}")
        _collect(child, f"{path}.{name}", into)


async def _cluster_uid(kube: KubeClient) -> str:
    try:
        namespace = await kube.get(_NAMESPACE)
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        raise NotReady(
            "may not read the namespace kube-system, whose uid identifies the cluster; "
            "grant `get` on it to the operator's service account"
        ) from error
    return str(namespace["metadata"]["uid"])
