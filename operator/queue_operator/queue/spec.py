"""What a stream may ask for."""

from typing import Final

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    Limits,
    check_capacity,
    check_defaults,
    check_tags,
    check_text,
)
from queue_operator.queue.protocol import HandlerType, StreamSpec

_DESCRIPTIONS: Final = ("worker_name", "host", "pod_uid", "version")


def check_spec(spec: StreamSpec, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raises InvalidArgument for the first field that is wrong: a claim for the stream would be
    refused each time.
    """
    check_text("assignee_id", spec.assignee_id, limits.id_characters)
    check_text("namespace", spec.namespace, limits.id_characters)
    check_capacity("capacity", spec.capacity)
    check_tags("tags", spec.tags, limits)
    for field in _DESCRIPTIONS:
        check_text(field, getattr(spec, field), limits.id_characters, required=False)
    seen: set[str] = set()
    for place, handler in enumerate(spec.types):
        _check_type(f"types[{place}]", handler, limits)
        if handler.type in seen:
            raise InvalidArgument(f"types[{place}].type", f"{handler.type!r} is listed twice")
        seen.add(handler.type)


def _check_type(field: str, handler: HandlerType, limits: Limits) -> None:
    check_text(f"{field}.type", handler.type, limits.id_characters)
    if handler.concurrency is not None:
        check_capacity(f"{field}.concurrency", handler.concurrency)
    check_defaults({handler.type: handler.defaults})
