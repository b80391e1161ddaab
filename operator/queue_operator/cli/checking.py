"""What a server with the usual limits would say of a submission, without asking it."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from queue_operator.api.errors import message_of, status_of
from queue_operator.api.submissions import job_from
from queue_operator.client import Submission
from queue_operator.client.operations import faults
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.validation import DEFAULT_LIMITS, MAX_JSON_DEPTH, Limits


@dataclass(frozen=True, slots=True)
class _Usual:
    limits: Limits = DEFAULT_LIMITS
    json_depth: int = MAX_JSON_DEPTH
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())


_MOST: Final = 2**31
_SIZES: Final = [one.name for one in fields(Limits) if isinstance(one.default, int)]
_LARGE: Final = _Usual(Limits(**dict.fromkeys(_SIZES, _MOST)), _MOST)  # type: ignore[arg-type]
"""What one of these refuses too, no setting of a server allows."""


def refusal(submission: Submission) -> tuple[str, str] | None:
    """Code and message; None for what is right. Says so where it is a matter of limits."""
    for unsendable in faults([submission]).values():
        return unsendable.code, str(unsendable)
    body = json.dumps(submission.document()).encode()
    refused = _refusal(body, _Usual())
    if refused is None or refused == _refusal(body, _LARGE):
        return refused
    code, message = refused
    return code, f"{message} (by the usual limits; those of the server may be others)"


def _refusal(body: bytes, rules: _Usual) -> tuple[str, str] | None:
    try:
        job_from(body, DEFAULT_NAMESPACE, rules)
    except InvalidArgument as error:
        return status_of(error)[1], message_of(error)
    return None
