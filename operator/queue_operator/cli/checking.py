"""What the server would say of a submission, without asking it. Its limits may be others than the
usual ones.
"""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from queue_operator.api.errors import message_of, status_of
from queue_operator.api.submissions import job_from
from queue_operator.client import Submission
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.validation import DEFAULT_LIMITS, MAX_JSON_DEPTH, Limits


@dataclass(frozen=True, slots=True)
class _Usual:
    limits: Limits = DEFAULT_LIMITS
    json_depth: int = MAX_JSON_DEPTH
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())


def refusal(submission: Submission) -> tuple[str, str] | None:
    """Code and message; None for what is right."""
    body = json.dumps(submission.document()).encode()
    try:
        job_from(body, DEFAULT_NAMESPACE, _Usual())
    except InvalidArgument as error:
        return status_of(error)[1], message_of(error)
    return None
