"""What is answered when something is wrong."""

from pydantic import Field

from queue_operator.api.scalars import Elapsed
from queue_operator.api.schemas.base import Answer


class ErrorDetail(Answer):
    """One fault."""

    field: str = Field(description="The field it is about; empty for the request as a whole.")
    code: str
    message: str
    job_id: str | None = Field(
        None, description="The job that has the idempotency key, or whose state does not allow it."
    )
    state: str | None = Field(None, description="That job's state, or those it may be seen in.")
    event: str | None = Field(None, description="What the state does not allow.")


class QuotaError(Answer):
    """Which limit was reached."""

    limit: str
    current: int
    maximum: int
    retry_after: Elapsed | None = Field(
        None, description="When to try again; not there for a batch that never fits as a whole."
    )


class APIError(Answer):
    """The body of every answer that is not a success."""

    code: str
    message: str
    details: list[ErrorDetail]
    request_id: str
    quota: QuotaError | None = Field(None, description="Only with QUOTA_EXCEEDED.")


class ItemError(Answer):
    """Why one job of a batch was rejected."""

    code: str
    message: str
    details: list[ErrorDetail]
    quota: QuotaError | None = Field(None, description="Only with QUOTA_EXCEEDED.")
