"""What a verdict says of messages to callback URLs: that they fail, or are told late. Pure."""

from typing import Final

from queue_operator.domain.situation import (
    FEW_FAILURES,
    LATE_S,
    Cause,
    Code,
    Level,
    MessagesNow,
    Situation,
)
from queue_operator.domain.words import command, many, span, text

_FAILED: Final = "webhooks list --state FAILED"
_PENDING: Final = "webhooks list --state PENDING"


def untold(now: Situation) -> list[Cause]:
    """Causes. Jobs do not wait for messages: nothing is stuck by them."""
    found = now.messages
    return [*_failing(found, now), *_late(found, now)]


def _failing(found: MessagesNow, now: Situation) -> list[Cause]:
    if not found.retrying and not found.given_up:
        return []
    lately = found.retrying + found.given_up_lately
    told = []
    if found.retrying:
        verb = "is" if found.retrying == 1 else "are"
        told.append(f"{_many(found.retrying, found)} to callback URLs {verb} tried again")
    if found.given_up:
        what = f"{found.given_up:,}" if told else _many(found.given_up, found)
        verb = "was" if found.given_up == 1 else "were"
        told.append(f"{what} {'' if told else 'to callback URLs '}{verb} given up")
    mostly = f", mostly {text(found.receiver)}: {text(found.error)}" if found.receiver else ""
    return [
        Cause(
            code=Code.MESSAGES_FAIL,
            level=Level.DEGRADED if lately >= FEW_FAILURES else Level.HEALTHY,
            message=f"{' and '.join(told)}{mostly}",
            next_step="Mend the receiver; what was given up can then be sent again, or purged."
            if found.given_up
            else "Mend the receiver: each is tried again for a day.",
            command=command(_FAILED if found.given_up else _PENDING, now.namespace),
            evidence={
                "retrying": found.retrying,
                "given_up": found.given_up,
                "given_up_lately": found.given_up_lately,
                "receiver": found.receiver,
                "error": found.error,
            },
        )
    ]


def _late(found: MessagesNow, now: Situation) -> list[Cause]:
    if found.oldest_due_s < LATE_S:
        return []
    return [
        Cause(
            code=Code.MESSAGES_LATE,
            level=Level.DEGRADED,
            message=f"a message to a callback URL has been due for {span(found.oldest_due_s)}",
            next_step="See whether a sender runs (webhooks.enabled), or is kept busy by receivers "
            "that do not answer.",
            command=command(_PENDING, now.namespace),
            evidence={"pending": found.pending, "oldest_due_s": round(found.oldest_due_s, 1)},
        )
    ]


def _many(count: int, found: MessagesNow) -> str:
    """Of more than were looked at nobody knows how many there are."""
    return f"{'at least ' if count >= found.most else ''}{many(count, 'message')}"
