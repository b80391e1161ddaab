"""What is held back."""

from datetime import datetime

from pydantic import Field

from queue_operator.api.schemas.base import Answer, Name, NamespaceQuery, Reason, Request
from queue_operator.domain.limits import REASON_CHARACTERS


class PauseRequest(Request):
    """What to pause."""

    type: Name | None = Field(None, description="Only jobs of this type; default: all jobs.")
    reason: Reason = Field(
        "", description=f"At most {REASON_CHARACTERS} characters; `why` shows it."
    )


class ResumeQuery(NamespaceQuery):
    """Which pause to end."""

    type: Name | None = Field(None, description="The one of this type; default: the one of all.")


class Pause(Answer):
    """No job of the namespace starts, or none of a type. Running ones go on."""

    namespace: str
    type: str = Field(description="Empty: all types.")
    reason: str
    by: str = Field(description="Who paused.")
    since: datetime | None


class PauseList(Answer):
    pauses: list[Pause]


class ResumeResult(Answer):
    resumed: bool = Field(description="Whether there was such a pause.")
