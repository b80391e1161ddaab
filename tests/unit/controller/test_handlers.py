"""What kopf is told, where a wrong spelling would be ignored without a word."""

from collections.abc import Iterable
from itertools import islice

import kopf
from kopf._cogs.structs.references import Resource  # no public way to ask which selectors apply

from queue_operator.controller.handlers import NoDiffBase, NoProgress, kopf_settings
from queue_operator.crd.names import GROUP, QUEUE_JOB, QUEUE_WORKER, VERSION, ResourceNames


def resource(names: ResourceNames) -> Resource:
    return Resource(
        group=GROUP,
        version=VERSION,
        plural=names.plural,
        kind=names.kind,
        singular=names.singular,
        shortcuts=frozenset({names.short}),
        categories=frozenset({"queue"}),
        subresources=frozenset({"status"}),
        namespaced=True,
        preferred=True,
        verbs=frozenset({"list", "watch", "patch"}),
    )


def test_finished_jobs_are_not_watched() -> None:
    selectors = kopf_settings().watching.field_selectors
    assert selectors.collect(resource(QUEUE_JOB)) == ["status.finished!=true"]
    assert selectors.collect(resource(QUEUE_WORKER)) == []


def test_kopf_writes_nothing_and_keeps_little() -> None:
    settings = kopf_settings()
    assert isinstance(settings.persistence.diffbase_storage, NoDiffBase)
    assert isinstance(settings.persistence.progress_storage, NoProgress)
    assert settings.posting.enabled is False
    assert settings.peering.standalone is True
    assert settings.scanning.disabled is True
    # A page is in memory as a whole, and an object may take half a megabyte.
    assert settings.watching.chunk_size == 100
    assert settings.queueing.idle_timeout == 0.5
    assert settings.queueing.worker_limit is None


def test_no_request_is_given_up() -> None:
    backoffs = kopf_settings().networking.error_backoffs
    assert isinstance(backoffs, Iterable)
    # The pauses of one request, and those of the next.
    for _ in range(2):
        assert list(islice(backoffs, 8)) == [1, 2, 4, 8, 15, 30, 30, 30]


def test_no_diff_base_is_built() -> None:
    body = kopf.Body({"metadata": {"name": "n"}, "spec": {"payload": {"large": "x"}}})
    assert NoDiffBase().build(body=body) == {}
