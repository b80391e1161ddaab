"""What handlers logged."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from queue_operator.api.schemas.base import Answer, NamespaceQuery
from queue_operator.api.schemas.searches import DIGITS
from queue_operator.domain.running import LOG_ATTEMPTS, LOG_LINES, USUAL_LOG_LINES


class LogQuery(NamespaceQuery):
    """What a look at a job's log takes."""

    attempt: Annotated[int, Field(ge=1, le=2**31 - 1), DIGITS] | None = Field(
        None, description="Only of this attempt; default: of all."
    )
    lines: Annotated[int, DIGITS] = Field(
        USUAL_LOG_LINES, ge=1, le=LOG_LINES, description="Most lines of an attempt, the newest."
    )


class LogLine(Answer):
    """One line."""

    at: datetime
    level: str
    message: str
    fields: dict[str, Any] = Field(description="What the handler gave beside the message.")


class AttemptLog(Answer):
    """The newest lines of one attempt, the oldest of them first."""

    attempt: int
    dropped: int = Field(description="Lines of the attempt that are not told.")
    lines: list[LogLine]


class JobLog(Answer):
    """By attempt, the oldest first; those without lines are left out."""

    job_id: str
    attempts: list[AttemptLog] = Field(
        description=f"At most the newest {LOG_ATTEMPTS} that have lines."
    )
