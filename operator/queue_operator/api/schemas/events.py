"""Jobs as they change."""

from datetime import datetime

from pydantic import Field

from queue_operator.api.schemas.base import MANY_TAGS, Answer, Name, NamespaceQuery, TagName
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase


class JobEventsQuery(NamespaceQuery):
    """What a stream of one job takes."""

    follow: bool = Field(False, description="Go on after the job has ended: it may be retried.")


class EventsQuery(NamespaceQuery):
    """Of which jobs a stream tells."""

    type: list[Name] = Field(default_factory=list, description="Any of these.")
    tag: list[TagName] = Field(
        default_factory=list,
        description="All of these: `key=value`.",
        json_schema_extra=MANY_TAGS,
    )
    status: list[Phase] = Field(default_factory=list, description="Any of these.")


class JobEvent(Answer):
    """A change of a job. `event` is what happened, CURRENT where it is told how the job is."""

    job_id: str
    namespace: str
    type: str
    status: Phase
    state: JobState
    event: str
    attempt: int
    at: datetime
