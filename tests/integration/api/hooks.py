"""What schemathesis cannot guess, for the process in which it runs: see `test_schemathesis`."""

import schemathesis
from hypothesis import strategies

PARENTS = 80
"""Jobs that others may depend on."""


def parent(number: int) -> str:
    """The id of one of them."""
    return f"parent-{number}"


schemathesis.openapi.format("cursor", strategies.just(""))
schemathesis.openapi.format("job-id", strategies.integers(0, PARENTS - 1).map(parent))
schemathesis.openapi.format("namespace", strategies.just("default"))
