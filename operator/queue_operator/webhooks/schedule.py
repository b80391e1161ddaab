"""What follows from the answer of a receiver, and when a message is tried again."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from itertools import chain, repeat
from typing import Final, Protocol

from queue_operator.backends.webhooks import Message, MessageState, Told

DELAYS_S: Final = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 6 * 3600.0)
LAST_DELAY_S: Final = 12 * 3600.0
"""After the others, as long as there is time."""
JITTER: Final = 0.2
"""The part of a delay that chance may take away: what failed together does not come back together,
and never later than was promised.
"""
MAX_RETRY_AFTER_S: Final = 3600.0
SHORTEST_S: Final = 1.0
"""What is left of the time is worth no try where it is less."""


class Answer(Protocol):
    """What came of one request. `refused`: the guard let nobody ask, and will not the next time."""

    @property
    def status(self) -> int | None: ...
    @property
    def error(self) -> str: ...
    @property
    def retry_after_s(self) -> float | None: ...
    @property
    def refused(self) -> bool: ...


class Outcome(StrEnum):
    """What came of a try, as the metrics count it."""

    DELIVERED = "delivered"
    RETRIED = "retried"
    """It failed, and is made again."""
    FAILED = "failed"
    """It was the last one, or the receiver is gone for good (410)."""
    REFUSED = "refused"
    """The guard let nobody ask."""


def delay_s(tries: int, retry_for_s: float, chance: float) -> float | None:
    """From try number `tries` (1, 2, …) to the next one, None where there is none. They end
    `retry_for_s` after the first. `chance` is from 0 to below 1.
    """
    before_s = 0.0
    for number, full_s in enumerate(chain(DELAYS_S, repeat(LAST_DELAY_S)), 1):
        left_s = retry_for_s - before_s
        if left_s < SHORTEST_S:
            return None
        if number == tries:
            return min(full_s, left_s) * (1 - JITTER * chance)
        before_s += full_s
    raise AssertionError  # `repeat` never ends


@dataclass(frozen=True, slots=True)
class OurFault:
    """The receiver was not asked, or not heard."""

    status: None = None
    error: str = "the sender failed; its log says why"
    retry_after_s: None = None
    refused: bool = False


def judged(
    message: Message,
    answer: Answer,
    *,
    retry_for_s: float,
    rng: Callable[[], float],
) -> tuple[Told, Outcome]:
    """What is written of a try of `message` that was just made."""
    status = answer.status
    if status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return _told(message, MessageState.DELIVERED, answer), Outcome.DELIVERED
    if answer.refused:
        return _told(message, MessageState.FAILED, answer), Outcome.REFUSED
    after_s = delay_s(message.tries + 1, retry_for_s, rng())
    if status == HTTPStatus.GONE or after_s is None:
        return _told(message, MessageState.FAILED, answer), Outcome.FAILED
    asked_s = min(answer.retry_after_s or 0.0, MAX_RETRY_AFTER_S)
    waits_s = max(after_s, asked_s)
    return _told(message, MessageState.PENDING, answer, waits_s), Outcome.RETRIED


def given_back(message: Message, after_s: float = 0.0) -> Told:
    """Nothing was tried."""
    return Told(id=message.id, claim=message.claim, state=MessageState.PENDING, after_s=after_s)


def _told(message: Message, state: MessageState, answer: Answer, after_s: float = 0.0) -> Told:
    is_delivered = state is MessageState.DELIVERED
    return Told(
        id=message.id,
        claim=message.claim,
        state=state,
        after_s=after_s,
        status=answer.status,
        error="" if is_delivered else answer.error or f"answered {answer.status}",
    )
