"""W3C Trace Context, as far as a queue has to understand it."""

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.traces import NO_TRACE, Trace, check_trace, trace_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_what_is_right_is_kept_as_it_is() -> None:
    assert trace_of(PARENT, "rojo=00f067aa0ba902b7,t61rcwkgmze@dd=a b") == Trace(
        PARENT, "rojo=00f067aa0ba902b7,t61rcwkgmze@dd=a b"
    )
    assert trace_of(PARENT).id == TRACE
    assert NO_TRACE.id == ""


@pytest.mark.parametrize(
    "parent",
    [
        None,
        "",
        "x",
        PARENT.upper(),
        PARENT[:-1],
        f"{PARENT}0",
        f"{PARENT}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"{PARENT}\n{PARENT}",
        PARENT * 1000,
    ],
)
def test_a_parent_that_means_nothing_counts_as_none(parent: str | None) -> None:
    assert trace_of(parent, "a=b") == NO_TRACE


def test_a_later_version_counts_as_far_as_this_one_knows_it() -> None:
    assert trace_of(f"01-{TRACE}-{SPAN}-01-what-is-new").parent == PARENT
    assert trace_of(f"01-{TRACE}-{SPAN}-01").parent == PARENT


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a=1, b=2 ,,", "a=1,b=2"),
        ("a", ""),
        ("A=1", ""),
        ("a=ü", ""),
        ("a=1\x00", ""),
        ("a=" + "x" * 511, ""),
        (",".join(f"k{n}=1" for n in range(33)), ""),
        (",".join(f"k{n}=1" for n in range(32)), ",".join(f"k{n}=1" for n in range(32))),
    ],
)
def test_a_state_that_nobody_may_send_on_is_left_out_alone(given: str, kept: str) -> None:
    assert trace_of(PARENT, given) == Trace(PARENT, kept)


@pytest.mark.parametrize(
    ("parent", "state", "field"),
    [
        (f"01-{TRACE}-{SPAN}-01", "", "traceparent"),
        (f" {PARENT}", "", "traceparent"),
        (None, "", "traceparent"),
        ("", "a=b", "tracestate"),
        (PARENT, "a=b,", "tracestate"),
        (PARENT, 7, "tracestate"),
    ],
)
def test_a_job_has_it_as_it_is_sent_on(parent: object, state: object, field: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        check_trace(parent, state)
    assert raised.value.field == field


def test_a_job_of_a_trace_and_of_none_is_right() -> None:
    check_trace(PARENT, "a=b")
    check_trace("", "")
