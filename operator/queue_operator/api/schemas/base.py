"""What requests, and what answers have in common."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from queue_operator.domain.limits import DEFAULT_LIMITS, REASON_CHARACTERS


class Request(BaseModel):
    # A field this server does not know is refused, never ignored: the caller relies on it.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    def plain(self) -> dict[str, Any]:
        """As JSON has it, without the fields that a view left unset."""
        return self.model_dump(mode="json", exclude_unset=True)


TEXT_PATTERN: Final = r"^[^\x00]*$"
"""What every store can hold."""

Name = Annotated[
    str,
    Field(
        min_length=1,
        json_schema_extra={"maxLength": DEFAULT_LIMITS.id_characters, "pattern": TEXT_PATTERN},
    ),
]
"""An id, a type, a key: never empty. How long it may be is a setting, 255 unless it is changed."""

Text = Annotated[
    str,
    Field(json_schema_extra={"maxLength": DEFAULT_LIMITS.id_characters, "pattern": TEXT_PATTERN}),
]

Reason = Annotated[
    str,
    Field(json_schema_extra={"maxLength": REASON_CHARACTERS, "pattern": TEXT_PATTERN}),
]

Cursor = Annotated[str, Field(json_schema_extra={"format": "cursor"})]
"""Nobody can guess one."""

Tags = Annotated[
    dict[str, str],
    Field(
        json_schema_extra={
            "maxProperties": DEFAULT_LIMITS.tags,
            "propertyNames": {"pattern": r"^[^=\x00]+$"},
            "additionalProperties": {"type": "string", "pattern": TEXT_PATTERN},
        }
    ),
]
"""Key and value have 128 characters at most with the = between them."""

TagName = Annotated[
    str,
    Field(
        min_length=1,
        json_schema_extra={"maxLength": DEFAULT_LIMITS.tag_characters, "pattern": TEXT_PATTERN},
    ),
]

MANY_TAGS: Final[dict[str, JsonValue]] = {"maxItems": DEFAULT_LIMITS.tags}


Namespace = Annotated[str, Field(json_schema_extra={"format": "namespace"})]
"""Which there are nobody can tell from the document."""


class NamespaceQuery(Request):
    """What every operation takes."""

    namespace: Namespace | None = Field(None, description="Default: the caller's own namespace.")
