"""Which trace a job belongs to, as W3C Trace Context writes it."""

import re
from typing import Final, NamedTuple

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.limits import MAX_TRACESTATE_CHARACTERS

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# A vendor may have a tenant's name before its own.
_MEMBER: Final = re.compile(
    r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MOST_MEMBERS: Final = 32
_VERSION: Final = "00"
_NO_VERSION: Final = "ff"


class Trace(NamedTuple):
    """A span that others go on from: both texts are empty where there is none."""

    parent: str = ""
    state: str = ""

    @property
    def id(self) -> str:
        """The 32 digits that all spans of the trace have in common, "" without one."""
        return trace_id(self.parent)


NO_TRACE: Final = Trace()


def trace_id(traceparent: str) -> str:
    """The trace of a `traceparent` that is right, "" of none."""
    return traceparent[3:35]


def trace_of(traceparent: str | None, tracestate: str | None = None) -> Trace:
    """What a caller gave. A `traceparent` that means nothing counts as none, and one of a later
    version as far as this one knows it; so does a `tracestate` that is too long or no list of
    vendors' members.
    """
    found = _PARENT.fullmatch(traceparent.strip()) if traceparent else None
    if found is None:
        return NO_TRACE
    version, trace, span, flags, more = found.groups()
    if version == _NO_VERSION or not trace.strip("0") or not span.strip("0"):
        return NO_TRACE
    if more is not None and version == _VERSION:
        return NO_TRACE
    return Trace(f"{_VERSION}-{trace}-{span}-{flags}", _state_of(tracestate or ""))


def _state_of(given: str) -> str:
    if len(given) > MAX_TRACESTATE_CHARACTERS:
        return ""
    members = [member.strip(" \t") for member in given.split(",")]
    members = [member for member in members if member]
    right = len(members) <= _MOST_MEMBERS and all(map(_MEMBER.fullmatch, members))
    return ",".join(members) if right else ""


def check_trace(traceparent: object, tracestate: object) -> None:
    """Raises InvalidArgument unless both are empty, or as `trace_of` gives them."""
    for field, given in ("traceparent", traceparent), ("tracestate", tracestate):
        if not isinstance(given, str):
            raise InvalidArgument(field, f"must be a string, not {type(given).__name__}")
    assert isinstance(traceparent, str) and isinstance(tracestate, str)  # noqa: S101, PT018
    kept = trace_of(traceparent, tracestate)
    if kept.parent != traceparent:
        raise InvalidArgument(
            "traceparent", "must be as 00-<32 hex digits>-<16>-<2>, neither number 0, or empty"
        )
    if kept.state != tracestate:
        raise InvalidArgument(
            "tracestate",
            f"must be vendors' members as in a=1,b=2, at most {MAX_TRACESTATE_CHARACTERS} "
            "characters, beside a traceparent",
        )
