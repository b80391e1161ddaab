"""What is too much, or of a wrong kind, at one door is so at every door."""

from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.doors.readers import ALL, TEXTS, Door

from queue_operator.auth.protocol import Identity
from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.worker_sessions import SessionOrder, WorkerSession
from queue_operator.crd.v1alpha1 import QueueWorkerSpec
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.queue.protocol import HandlerType, StreamSpec
from queue_operator.queue.spec import check_spec
from queue_operator.rpc.hello import spec_of
from queue_operator.wire.v1 import worker_pb2 as pb

REFUSED = (InvalidArgument, ValidationError)
CENTURY_S = 3_153_600_000

MOST = [
    ({"delay": CENTURY_S}, "delay"),
    ({"timeout": CENTURY_S}, "timeout"),
    ({"max_attempts": 100}, "max_attempts"),
    ({"backoff": {"initial_delay": CENTURY_S}}, "backoff"),
    ({"backoff": {"max_delay": CENTURY_S}}, "backoff"),
    ({"backoff": {"multiplier": 1000}}, "backoff"),
    ({"backoff": {"multiplier": 1.5}}, "backoff"),
    ({"backoff": {"strategy": "CUSTOM", "delays": [1] * 100}}, "backoff"),
]
TOO_MUCH = [
    ({"delay": CENTURY_S + 1}, "delay"),
    ({"timeout": CENTURY_S + 1}, "timeout"),
    ({"timeout": 0}, "timeout"),
    ({"max_attempts": 101}, "max"),
    ({"backoff": {"initial_delay": CENTURY_S + 1}}, "backoff"),
    ({"backoff": {"max_delay": CENTURY_S + 1}}, "backoff"),
    ({"backoff": {"multiplier": 1001}}, "backoff.multiplier"),
    ({"backoff": {"multiplier": 0.5}}, "backoff.multiplier"),
    ({"backoff": {"strategy": "CUSTOM", "delays": [1] * 101}}, "backoff.delays"),
]
OTHER_KINDS = [
    ({"max_attempts": "3"}, "max"),
    ({"max_attempts": True}, "max"),
    ({"max_attempts": 1.5}, "max"),
    ({"backoff": {"multiplier": "5"}}, "multiplier"),
    ({"backoff": {"multiplier": True}}, "multiplier"),
    ({"delay": True}, "delay"),
]


@pytest.mark.parametrize("door", ALL)
@pytest.mark.parametrize(("fields", "field"), MOST)
def test_the_most_is_taken(door: Door, fields: dict[str, Any], field: str) -> None:
    assert getattr(door(**fields), {"delay": "delay_s", "timeout": "timeout_s"}.get(field, field))


@pytest.mark.parametrize("door", ALL)
@pytest.mark.parametrize(("fields", "field"), TOO_MUCH)
def test_what_is_more_is_refused_by_name(door: Door, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(REFUSED, match=field):
        door(**fields)


@pytest.mark.parametrize("door", TEXTS)
@pytest.mark.parametrize(("fields", "field"), OTHER_KINDS)
def test_a_text_is_no_number(door: Door, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(REFUSED, match=field):
        door(**fields)


async def test_a_worker_runs_so_many_jobs_at_a_time_and_no_more() -> None:
    backend = MemoryBackend()
    session = WorkerSession(session_id="s", namespace="n", worker_name="w", capacity=10_000)
    await backend.open_session(session)
    await backend.order_session("s", SessionOrder(capacity=10_000))
    check_spec(_spec(10_000, HandlerType(type="t", concurrency=10_000)))
    assert QueueWorkerSpec(capacity=10_000).capacity == 10_000
    assert spec_of(_hello(10_000), _ADMIN, DEFAULT_LIMITS).capacity == 10_000
    for refused in (
        lambda: check_spec(_spec(10_001)),
        lambda: check_spec(_spec(1, HandlerType(type="t", concurrency=10_001))),
        lambda: QueueWorkerSpec(capacity=10_001),
        lambda: QueueWorkerSpec(capacity=True),
        lambda: spec_of(_hello(10_001), _ADMIN, DEFAULT_LIMITS),
    ):
        with pytest.raises(REFUSED, match=r"capacity|concurrency"):
            refused()
    with pytest.raises(InvalidArgument, match=r"order.capacity: must be .* from 0 to 10000"):
        await backend.order_session("s", SessionOrder(capacity=10_001))
    with pytest.raises(InvalidArgument, match=r"session\.capacity"):
        await backend.open_session(
            WorkerSession(session_id="t", namespace="n", worker_name="w", capacity=10_001)
        )


_ADMIN = Identity(name="a", namespace="n", admin=True)


def _spec(capacity: int, *types: HandlerType) -> StreamSpec:
    return StreamSpec(assignee_id="w", capacity=capacity, namespace="n", types=types)


def _hello(capacity: int) -> pb.Hello:
    return pb.Hello(session_id="s", worker_name="w", capacity=capacity)
