"""What handlers logged."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from queue_operator.api.schemas.base import Answer, Cursor, NamespaceQuery
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
    cursor: Cursor | None = Field(
        None,
        description="`next_cursor` of an answer to the same question: only what came since.",
    )


class LogLine(Answer):
    """One line."""

    at: datetime
    level: str
    message: str
    fields: dict[str, Any] = Field(description="What the handler gave beside the message.")


class AttemptLog(Answer):
    """The newest lines of one attempt, the oldest of them first."""

    attempt: int = Field(
        description="Its number; one that did not count has the same as the one after it."
    )
    continued: bool = Field(description="Whether lines of it were read under the `cursor` before.")
    dropped: int = Field(
        description="Lines of the attempt that are not told; if it is `continued`, of those since."
    )
    lines: list[LogLine]


class JobLog(Answer):
    """By attempt, the oldest first; those without lines, or new ones, are left out."""

    job_id: str
    attempts: list[AttemptLog] = Field(
        description=f"At most the newest {LOG_ATTEMPTS} that have lines."
    )
    next_cursor: str = Field(description="Where what comes next begins; it is always there.")
