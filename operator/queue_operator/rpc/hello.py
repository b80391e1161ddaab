"""Who says hello, and what stream they get."""

from collections.abc import Collection

from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import Forbidden, InvalidArgument
from queue_operator.domain.job import TypeDefaults
from queue_operator.domain.limits import MAX_TYPES
from queue_operator.domain.validation import (
    Limits,
    check_capacity,
    check_positive,
    check_tags,
    check_text,
)
from queue_operator.queue.protocol import HandlerType, StreamSpec
from queue_operator.wire.convert import seconds_from_wire
from queue_operator.wire.v1 import worker_pb2 as pb


def spec_of(hello: pb.Hello, identity: Identity, limits: Limits) -> StreamSpec:
    """The stream a worker asks for. A token bound to a pod decides name and namespace; an
    administrator without a pod is believed, and a static token but for the pod. Whether the
    worker may work there is for a review to say.

    Raises InvalidArgument naming the field of the hello that is wrong, Forbidden for a
    token that is none of these.
    """
    check_text("session_id", hello.session_id, limits.id_characters)
    check_capacity("capacity", hello.capacity)
    check_tags("tags", hello.tags, limits)
    check_text("host", hello.host, limits.id_characters, required=False)
    check_text("version", hello.version, limits.id_characters, required=False)
    check_text("process", hello.process, limits.id_characters, required=False)
    namespace, worker_name, pod_uid = _proven(hello, identity)
    check_text("namespace", namespace, limits.id_characters)
    check_text("worker_name", worker_name, limits.id_characters)
    check_text("pod_uid", pod_uid, limits.id_characters, required=False)
    return StreamSpec(
        assignee_id=hello.session_id,
        capacity=hello.capacity,
        namespace=namespace,
        tags=frozenset(hello.tags),
        types=types_of(hello.types, limits.id_characters),
        worker_name=worker_name,
        host=hello.host,
        pod_uid=pod_uid,
        version=hello.version,
        process=hello.process,
    )


def _proven(hello: pb.Hello, identity: Identity) -> tuple[str, str, str]:
    if identity.pod_name:
        return identity.namespace, identity.pod_name, identity.pod_uid
    if identity.admin:
        return hello.namespace or identity.namespace, hello.worker_name, hello.pod_uid
    if identity.scopes:
        return hello.namespace or identity.namespace, hello.worker_name, ""
    raise Forbidden(
        f"the token of {identity.name} is not bound to a pod; mount a projected service account "
        "token into the worker's pod and send that"
    )


def types_of(messages: Collection[pb.HandlerType], id_characters: int) -> tuple[HandlerType, ...]:
    """Raises InvalidArgument naming the one that is wrong."""
    seen: set[str] = set()
    types = []
    if len(messages) > MAX_TYPES:
        raise InvalidArgument("types", f"has {len(messages)} entries; the limit is {MAX_TYPES}")
    for index, message in enumerate(messages):
        field = f"types[{index}]"
        check_text(f"{field}.type", message.type, id_characters)
        if message.type in seen:
            raise InvalidArgument(f"{field}.type", f"{message.type!r} is listed twice")
        seen.add(message.type)
        types.append(_type(field, message))
    return tuple(types)


def _type(field: str, message: pb.HandlerType) -> HandlerType:
    timeout_s = None
    if message.HasField("timeout"):
        timeout_s = seconds_from_wire(f"{field}.timeout", message.timeout)
        check_positive(f"{field}.timeout", timeout_s)
    return HandlerType(
        type=message.type,
        concurrency=message.concurrency or None,
        defaults=TypeDefaults(max_attempts=message.max_attempts or None, timeout_s=timeout_s),
    )
