"""Whose word counts: the token's or the hello's."""

import pytest

from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import Forbidden
from queue_operator.domain.job import TypeDefaults
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.queue.protocol import HandlerType
from queue_operator.rpc.hello import spec_of
from queue_operator.wire.v1 import worker_pb2 as pb

HELLO = pb.Hello(
    session_id="s", worker_name="said", namespace="said-too", pod_uid="said-as-well", capacity=4
)


def test_a_pods_token_decides_name_namespace_and_uid() -> None:
    pod = Identity(name="sa", namespace="team", pod_name="worker-0", pod_uid="uid-0")
    spec = spec_of(HELLO, pod, DEFAULT_LIMITS)
    assert (spec.namespace, spec.worker_name, spec.pod_uid) == ("team", "worker-0", "uid-0")
    assert (spec.assignee_id, spec.capacity) == ("s", 4)


def test_an_administrator_without_a_pod_is_believed() -> None:
    admin = Identity(name="root", namespace="default", admin=True)
    spec = spec_of(HELLO, admin, DEFAULT_LIMITS)
    assert (spec.namespace, spec.worker_name) == ("said-too", "said")
    silent = pb.Hello(session_id="s", worker_name="said", capacity=1)
    assert spec_of(silent, admin, DEFAULT_LIMITS).namespace == "default"


def test_a_token_that_is_bound_to_no_pod_opens_no_session() -> None:
    with pytest.raises(Forbidden, match="not bound to a pod"):
        spec_of(HELLO, Identity(name="someone", namespace="team"), DEFAULT_LIMITS)


def test_a_static_token_is_believed_but_for_the_pod() -> None:
    """The pod owns a resource; who says which one it is must be vouched for by the cluster."""
    static = Identity(name="ops", namespace="team", scopes=frozenset({"worker"}))
    spec = spec_of(HELLO, static, DEFAULT_LIMITS)
    assert (spec.namespace, spec.worker_name, spec.pod_uid) == ("said-too", "said", "")


def test_registrations_left_out_stay_left_out() -> None:
    hello = pb.Hello(session_id="s", worker_name="w", capacity=1)
    hello.types.add(type="bare")
    limited = hello.types.add(type="limited", concurrency=2, max_attempts=3)
    limited.timeout.FromMilliseconds(1500)
    admin = Identity(name="root", namespace="default", admin=True)
    assert spec_of(hello, admin, DEFAULT_LIMITS).types == (
        HandlerType(type="bare"),
        HandlerType(
            type="limited",
            concurrency=2,
            defaults=TypeDefaults(max_attempts=3, timeout_s=1.5),
        ),
    )
