"""Payloads that are read back."""

from typing import Any

import pytest
from tests.unit.cli.typed import document, typed
from tests.unit.client.scripted import Answer, serving

JOB = {"job_id": "a", "namespace": "n", "type": "t", "attempt": 0, "priority": "NORMAL"}


def job(**content: Any) -> Answer:
    return Answer(200, {**JOB, "state": "SCHEDULED", **content})


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"payload": {"to": "a"}}, '"to": "a"'),
        ({"payload": None}, "null"),
        ({"payload_base64": "AP8="}, "2 bytes; --output json has them as base64"),
    ],
)
def test_a_payload_is_shown_where_it_is_asked_for(content: dict[str, Any], shown: str) -> None:
    with serving(job(**content)) as script:
        done = typed("get", "a", "--payload", server=script)
        assert done.exit_code == 0, done.output
        printed = document("get", "a", "--payload", server=script)
    assert "payload" in done.stdout
    assert shown in done.stdout
    assert {name: printed[name] for name in content} == content
    assert all("include_payload=true" in asked.path for asked in script.asked)


def test_nobody_else_is_shown_it() -> None:
    with serving(job()) as script:
        done = typed("get", "a", server=script)
    assert "payload" not in done.stdout
    assert "include_payload" not in script.asked[0].path
