"""Bodies as models."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from queue_operator.api.errors import InvalidBody, details_from

M = TypeVar("M", bound=BaseModel)


def parse(body: bytes, model: type[M]) -> M:
    """An instance of `model`. Raises InvalidBody naming every faulty field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidBody(details_from(error)) from None


def given(model: BaseModel) -> dict[str, Any]:
    """What the caller wrote, for the audit."""
    written: dict[str, Any] = model.model_dump(mode="json", exclude_unset=True)
    return written
