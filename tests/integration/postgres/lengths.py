"""How long the tests with many rounds run."""

import os

FULL = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"


def rounds(*, short: int, long: int) -> int:
    """`long` with QUEUE_OPERATOR_TEST_FULL=1."""
    return long if FULL else short
