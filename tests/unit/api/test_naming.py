"""Names that the server gives to jobs."""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from queue_operator.api import naming


def test_no_two_are_the_same_whoever_asks() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: naming.new_job_id(), range(4_000)))
    assert len(set(made)) == len(made)
    assert {uuid.UUID(one).version for one in made} == {7}


def test_the_system_is_asked_for_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return os.getrandom(size)

    monkeypatch.setattr(os, "urandom", urandom)
    monkeypatch.setattr(naming, "_spare", [])
    tails = {naming.new_job_id()[-16:] for _ in range(600)}
    assert len(asked) == 3
    assert len(tails) == 600
