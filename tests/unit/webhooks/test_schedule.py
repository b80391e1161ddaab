"""When a message is tried again, and what is written of a try."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.webhooks.messages import message

from queue_operator.backends.webhooks import MessageState
from queue_operator.webhooks.schedule import JITTER, Outcome, delay_s, given_back, judged

DAY_S = 86_400.0


@dataclass(frozen=True)
class Answered:
    status: int | None = None
    error: str = ""
    retry_after_s: float | None = None
    refused: bool = False


def delays(retry_for_s: float, chance: float = 0.0) -> list[float]:
    found: list[float] = []
    while (after_s := delay_s(len(found) + 1, retry_for_s, chance)) is not None:
        found.append(after_s)
    return found


def test_a_day_of_tries() -> None:
    hour_s = 3600.0
    first = [5, 30, 120, 600, hour_s, 3 * hour_s, 6 * hour_s, 12 * hour_s]
    assert delays(DAY_S) == [*first, DAY_S - sum(first)]


@given(st.floats(1.0, 30 * DAY_S), st.floats(0, 1, exclude_max=True))
def test_tries_end_in_time_and_chance_makes_them_earlier_only(
    retry_for_s: float, chance: float
) -> None:
    full, drawn = delays(retry_for_s), delays(retry_for_s, chance)
    assert retry_for_s - 1 <= sum(full) <= retry_for_s * (1 + 1e-9)
    assert len(drawn) == len(full)
    for late, early in zip(full, drawn, strict=True):
        assert late * (1 - JITTER) <= early <= late


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_any_2xx_is_enough_whatever_became_of_its_body(status: int) -> None:
    told, outcome = judged(
        message(), Answered(status, "the answer did not end"), retry_for_s=DAY_S, rng=float
    )
    assert (told.state, told.status, told.error) == (MessageState.DELIVERED, status, "")
    assert (told.id, told.claim, told.after_s) == ("msg-0", 7, 0)
    assert outcome is Outcome.DELIVERED


@pytest.mark.parametrize(
    ("answer", "outcome", "error"),
    [
        (Answered(410), Outcome.FAILED, "answered 410"),
        (Answered(error="10.0.0.1 is inside", refused=True), Outcome.REFUSED, "10.0.0.1 is inside"),
    ],
)
def test_what_will_not_get_better_is_not_tried_again(
    answer: Answered, outcome: Outcome, error: str
) -> None:
    told, found = judged(message(), answer, retry_for_s=DAY_S, rng=float)
    assert (told.state, told.after_s, told.error) == (MessageState.FAILED, 0, error)
    assert found is outcome


@pytest.mark.parametrize(
    "answer", [Answered(500), Answered(429), Answered(301), Answered(404), Answered(error="gone")]
)
def test_all_else_is_tried_again(answer: Answered) -> None:
    told, outcome = judged(message(tries=1), answer, retry_for_s=DAY_S, rng=float)
    assert (told.state, outcome) == (MessageState.PENDING, Outcome.RETRIED)
    assert told.after_s == 30
    assert told.error or told.status


@pytest.mark.parametrize(("asked_s", "waits_s"), [(3, 5), (90, 90), (86_400, 3600)])
def test_a_receiver_may_ask_for_up_to_an_hour(asked_s: float, waits_s: float) -> None:
    answer = Answered(503, retry_after_s=asked_s)
    told, _ = judged(message(), answer, retry_for_s=DAY_S, rng=float)
    assert told.after_s == waits_s


def test_the_last_try_fails_for_good() -> None:
    tries = len(delays(DAY_S))
    told, _ = judged(message(tries=tries - 1), Answered(500), retry_for_s=DAY_S, rng=float)
    assert told.state is MessageState.PENDING
    told, outcome = judged(message(tries=tries), Answered(500), retry_for_s=DAY_S, rng=float)
    assert (told.state, outcome) == (MessageState.FAILED, Outcome.FAILED)


def test_what_is_given_back_was_not_tried() -> None:
    told = given_back(message())
    assert (told.state, told.status, told.error) == (MessageState.PENDING, None, "")
