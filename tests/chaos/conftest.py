"""What the tests of this folder share."""

import time

import pytest
from tests.chaos.telling import Tell


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Says something at once, whatever pytest does with what tests print."""
    began = time.monotonic()

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n[chaos {time.monotonic() - began:5.1f} s] {text}", end="", flush=True)

    return say
