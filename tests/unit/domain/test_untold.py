"""What a verdict says of messages to callback URLs."""

from pathlib import Path
from typing import Any

import pytest

from queue_operator.domain.situation import (
    RUNBOOK,
    Cause,
    Code,
    Hold,
    Level,
    MessagesNow,
    Situation,
    TypeNow,
    Verdict,
)
from queue_operator.domain.verdict import judge

RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks" / "README.md"
AWAY = {"receiver": "https://shop.example:443", "error": "answered 503"}


def verdict(**fields: Any) -> Verdict:
    return judge(Situation(namespace="shop", messages=MessagesNow(**fields)))


def cause(**fields: Any) -> Cause:
    [found] = verdict(**fields).causes
    return found


def test_what_is_told_in_time_is_no_cause() -> None:
    assert verdict(pending=12, oldest_due_s=299.0).causes == ()


@pytest.mark.parametrize(
    ("fields", "level", "message"),
    [
        (
            {"retrying": 4, "pending": 9},
            Level.HEALTHY,
            "4 messages to callback URLs are tried again, mostly https://shop.example:443: "
            "answered 503",
        ),
        ({"retrying": 5}, Level.DEGRADED, "5 messages to callback URLs are tried again"),
        (
            {"given_up": 70},
            Level.HEALTHY,
            "70 messages to callback URLs were given up",
        ),
        (
            {"given_up": 70, "given_up_lately": 5},
            Level.DEGRADED,
            "70 messages to callback URLs were given up",
        ),
        (
            {"retrying": 1, "given_up": 6, "given_up_lately": 4},
            Level.DEGRADED,
            "1 message to callback URLs is tried again and 6 were given up",
        ),
        (
            {"retrying": 1000, "most": 1000},
            Level.DEGRADED,
            "at least 1,000 messages to callback URLs are tried again",
        ),
    ],
)
def test_messages_that_fail(fields: dict[str, Any], level: Level, message: str) -> None:
    found = cause(**fields, **AWAY)
    assert (found.code, found.level) == (Code.MESSAGES_FAIL, level)
    assert found.message.startswith(message)
    state = "FAILED" if "given_up" in fields else "PENDING"
    wanted = f"queue-operator webhooks list --state {state} --namespace shop"
    assert found.command == wanted
    assert found.evidence["receiver"] == AWAY["receiver"]


def test_messages_that_nobody_sends() -> None:
    told = verdict(pending=3, oldest_due_s=300.0)
    assert told.level is Level.DEGRADED
    assert told.sentence == "Degraded: a message to a callback URL has been due for 5 min."
    assert told.causes[0].code is Code.MESSAGES_LATE
    assert told.causes[0].evidence == {"pending": 3, "oldest_due_s": 300.0}


def test_jobs_come_before_messages() -> None:
    stuck = Situation(
        namespace="shop",
        types=(TypeNow(type="mail", due=1, oldest_s=30.0),),
        holds=(Hold(type="mail"),),
        messages=MessagesNow(retrying=9, oldest_due_s=900.0),
    )
    told = judge(stuck)
    assert told.level is Level.STUCK
    assert [one.code for one in told.causes] == [
        *(Code.PAUSED, Code.MESSAGES_FAIL, Code.MESSAGES_LATE)
    ]


def test_what_a_receiver_says_stays_within_its_sentence() -> None:
    assert "\\n" in cause(retrying=1, receiver="https://a:443", error="a\nb").message


def test_each_cause_has_a_section_of_the_runbook() -> None:
    sections = RUNBOOKS.read_text().splitlines()
    assert {f"### {RUNBOOK[code]}" for code in Code} <= set(sections)
