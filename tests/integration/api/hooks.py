"""What schemathesis cannot guess, for the process in which it runs: see `test_schemathesis`."""

import os
from itertools import count
from typing import Any

import schemathesis
from hypothesis import strategies

PARENTS = 80
"""Jobs that others may depend on."""
ENDED = 50
"""Jobs that may be deleted."""
ATTIC = "attic"
"""Where those are: examples that delete whatever they find are not for this namespace."""
_EXAMPLE = "report-2025-12"
_MESSAGE = "msg_4711_0192f1d29b017cc39c3e0d6f9a1b2c3d"
MESSAGE = "QUEUE_OPERATOR_TEST_MESSAGE"
"""The variable with the id of a message in the attic: no store makes that of the example."""

_ended = count()


def parent(number: int) -> str:
    """The id of one of the parents."""
    return f"parent-{number}"


def ended(number: int) -> str:
    """The id of one that has ended."""
    return f"ended-{number}"


schemathesis.openapi.format(
    "callback-url",
    strategies.from_regex(
        r"https://[a-z]{1,9}\.example\.(com|org)(:8443)?(/[A-Za-z0-9._~-]{0,20})?", fullmatch=True
    ),
)
schemathesis.openapi.format("cursor", strategies.just(""))
schemathesis.openapi.format("job-id", strategies.integers(0, PARENTS - 1).map(parent))
schemathesis.openapi.format("namespace", strategies.just("default"))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """The example of a deletion can be deleted once; others stand in for it, and for a message."""
    if (case.path_parameters or {}).get("message_id") == _MESSAGE:
        case.path_parameters["message_id"] = os.environ[MESSAGE]
        case.query = {**(case.query or {}), "namespace": ATTIC}
    if case.method == "DELETE" and (case.path_parameters or {}).get("job_id") == _EXAMPLE:
        case.path_parameters["job_id"] = ended(next(_ended) % ENDED)
        case.query = {**(case.query or {}), "namespace": ATTIC}
