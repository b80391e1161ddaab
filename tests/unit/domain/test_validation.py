"""A bad submission is refused with the name of the field."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Demand, Job, ResourceRef
from queue_operator.domain.lease import Held
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    Limits,
    check_choice,
    check_choices,
    check_demand,
    check_duration,
    check_held,
    check_in_turn,
    check_job,
    check_limit,
    check_limits,
    check_positive,
    check_texts,
    check_ttl,
)

GOOD = Job(id="a", type="hello")


def test_a_good_job_passes() -> None:
    check_job(GOOD)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", 7),
        ("id", "x" * 10_240),
        ("id", "a\x00b"),
        ("id", "\ud800"),
        ("type", ""),
        ("namespace", ""),
        ("payload", "text"),
        ("tags", "tag"),
        ("tags", frozenset({""})),
        ("tags", frozenset({"x" * 129})),
        ("tags", frozenset(str(n) for n in range(33))),
        ("created_at", datetime(2026, 1, 1)),
        ("scheduled_at", datetime(2026, 1, 1)),
        ("scheduled_at", datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))),
        ("timeout_s", 0),
        ("timeout_s", -1.0),
        ("timeout_s", 1e12),
        ("timeout_s", float("nan")),
        ("delay_s", -1.0),
        ("delay_s", 1e12),
        ("max_attempts", -1),
        ("max_attempts", 101),
        ("state", JobState.RUNNING),
        ("assignee_id", "w"),
        ("result", b"r"),
        ("result", b""),
        ("retry_count", 1),
        ("eligible_at", datetime(2026, 1, 1, tzinfo=UTC)),
        ("tags", ["a"]),
        ("tags", {"a": "b"}),
        ("priority", "HIGH"),
        ("created_at", "2026-01-01"),
        ("timeout_s", True),
        ("timeout_s", float("inf")),
        ("timeout_s", "1"),
        ("delay_s", 10**400),
        ("max_attempts", 1.5),
        ("max_attempts", True),
        ("dependency_mode", "AFTER"),
        ("depends_on", "a"),
        ("depends_on", ("b", "b")),
        ("depends_on[1]", ("b", "")),
        ("depends_on[0]", ("a",)),
        ("resource", "uid"),
        ("resource.name", ResourceRef("c", "u", "a\x00")),
        ("resource.generation", ResourceRef("c", "u", "n", 0)),
        ("backoff", "CONSTANT"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    attribute = field.partition("[")[0].partition(".")[0]
    with pytest.raises(InvalidArgument) as caught:
        check_job(replace(GOOD, **{attribute: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "backoff"),
    [
        ("backoff.initial_delay_s", Backoff(initial_delay_s=-1)),
        ("backoff.max_delay_s", Backoff(max_delay_s=float("inf"))),
        ("backoff.multiplier", Backoff(multiplier=0.5)),
        ("backoff.delays_s", Backoff(BackoffStrategy.CUSTOM)),
        ("backoff.delays_s", Backoff(delays_s=(1.0,))),
        ("backoff.delays_s[1]", Backoff(BackoffStrategy.CUSTOM, delays_s=(1.0, -1.0))),
        ("backoff.strategy", Backoff("CONSTANT")),  # type: ignore[arg-type]
        ("backoff.multiplier", Backoff(multiplier=float("nan"))),
        ("backoff.delays_s", Backoff(BackoffStrategy.CUSTOM, delays_s=[1.0])),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_backoff_is_named(field: str, backoff: Backoff) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_job(replace(GOOD, backoff=backoff))
    assert caught.value.field == field


def test_a_payload_over_the_limit() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        check_job(replace(GOOD, payload=b"12345"), Limits(payload_bytes=4))
    assert (caught.value.field, caught.value.size, caught.value.limit) == ("payload", 5, 4)


def test_tags_count_in_bytes_where_a_long_one_is_allowed() -> None:
    """A character may take four, and every tag takes eight more."""
    limits = Limits(tag_characters=2552, tags=1000)
    check_job(replace(GOOD, tags=frozenset({"x" * 2552})), limits)
    check_job(replace(GOOD, tags=frozenset({"\U00020000" * 638})), limits)
    for tags in ({"\U00020000" * 639}, {"x" * 2552, "y"}, {chr(0x4E00 + n) for n in range(300)}):
        with pytest.raises(InvalidArgument, match="the limit is 2560"):
            check_job(replace(GOOD, tags=frozenset(tags)), limits)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(id_characters=331), "limits.id_characters: must be a whole number from 1 to 330"),
        (Limits(tag_characters=2553), "limits.tag_characters: must be a whole number from 1 to 25"),
    ],
)
def test_no_limit_lets_in_what_no_index_takes(limits: Limits, told: str) -> None:
    check_limits(Limits(id_characters=330, tag_characters=2552))
    with pytest.raises(InvalidArgument, match=told):
        check_limits(limits)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12, 10**400, "1", True])
def test_a_time_to_live_is_more_than_nothing_and_at_most_a_century(seconds: Any) -> None:
    check_ttl("ttl", 0.001)
    with pytest.raises(InvalidArgument, match="ttl: "):
        check_ttl("ttl", seconds)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (timedelta(minutes=5), "not timedelta: give its total_seconds()"),
        ("5", "not str"),
        (True, "not bool"),
        (None, "not NoneType"),
    ],
)
def test_what_is_no_number_of_seconds_is_told_so(value: Any, told: str) -> None:
    for check in (check_duration, check_ttl, check_positive):
        with pytest.raises(InvalidArgument) as refused:
            check("timeout_s", value)
        assert str(refused.value) == f"timeout_s: must be a number of seconds, {told}"


@pytest.mark.parametrize("limit", [0, -1, 1.0, True, "1", None, 11, float("nan")])
def test_a_limit_is_a_whole_number_within_its_bound(limit: Any) -> None:
    check_limit("limit", 10, 10)
    with pytest.raises(InvalidArgument, match="limit: "):
        check_limit("limit", limit, 10)


@pytest.mark.parametrize("texts", ["text", b"text", None, iter(["a"]), {"a": 1}, [""], [1]])
def test_texts_are_a_set_or_a_sequence(texts: Any) -> None:
    check_texts("texts", ("a", "b"), 9)
    with pytest.raises(InvalidArgument, match="texts: "):
        check_texts("texts", texts, 9)


def test_a_choice_is_no_text_that_reads_like_one() -> None:
    check_choice("state", JobState.RUNNING, JobState)
    for text in ("HIGH", Priority.HIGH.value):
        with pytest.raises(InvalidArgument) as refused:
            check_choice("priority", text, Priority)
        told = "priority: must be the member Priority.HIGH, not the text 'HIGH'"
        assert str(refused.value) == told
    with pytest.raises(InvalidArgument) as refused:
        check_choices("priorities", [Priority.LOW, "URGENT"], Priority)
    assert str(refused.value) == (
        "priorities: must be one of CRITICAL, HIGH, NORMAL, LOW, BULK (members of Priority)"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("assignee_id", ""),
        ("limit", 0),
        ("namespace", "a\x00"),
        ("tags", iter(["a"])),
        ("types", "t"),
        ("worker_name", None),
        ("host", "\ud800"),
    ],
)
def test_a_wrong_field_of_a_demand_is_named(field: str, value: Any) -> None:
    demand = Demand(assignee_id="w", limit=1)
    check_demand(demand)
    with pytest.raises(InvalidArgument) as caught:
        check_demand(replace(demand, **{field: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "held"),
    [
        ("held[2]", "a"),
        ("held[2].job_id", Held("", "t")),
        ("held[2].namespace", Held("a", "t", "")),
        ("held[2].token", Held("a", None)),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_field_of_what_is_held_is_named(field: str, held: Any) -> None:
    check_held(2, Held("a", "t"))
    with pytest.raises(InvalidArgument) as caught:
        check_held(2, held)
    assert caught.value.field == field


def test_what_the_queue_writes_is_looked_at_in_each_job_of_a_batch() -> None:
    check = check_in_turn(DEFAULT_LIMITS)
    check(GOOD)
    with pytest.raises(InvalidArgument, match="attempt"):
        check(replace(GOOD, id="b", attempt=1))


def test_tags_are_looked_at_in_each_job_of_a_batch_that_has_others() -> None:
    check = check_in_turn(DEFAULT_LIMITS)
    check(GOOD)
    check(replace(GOOD, id="b", tags=frozenset({"one"})))
    wrongs: list[Any] = [frozenset({""}), ["one"], frozenset({1}), frozenset({"x" * 1000, "y"})]
    for wrong in wrongs:
        with pytest.raises(InvalidArgument, match="tags"):
            check(replace(GOOD, id="c", tags=wrong))
