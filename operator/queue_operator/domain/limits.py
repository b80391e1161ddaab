"""How much of everything may be given: the table that doors, schemas and pages are made from."""

from dataclasses import dataclass
from typing import Final

from queue_operator.domain.reach import Reach

MAX_DURATION_S: Final = 100 * 365 * 86_400.0
"""A century. Longer ones overflow timestamps and timers of stores and workers."""
MAX_ATTEMPTS_BOUND: Final = 100
MAX_MULTIPLIER: Final = 1000.0
MAX_DELAYS: Final = 100
"""As many as there can be retries."""
MAX_CAPACITY: Final = 10_000
"""Jobs of one worker at a time, and of one type of it. Its heartbeat names them all."""
MAX_TYPES: Final = 10_000
"""Handlers of one worker."""
MAX_LIMIT: Final = 1_000_000
"""The most rows that one call may ask for."""
MAX_JSON_DEPTH: Final = 100
MAX_URL_CHARACTERS: Final = 2048
REASON_CHARACTERS: Final = 1024
MAX_PAGE: Final = 1000
TAGS_BYTES: Final = 2560
"""The tags of one job together, with what each takes beside its text."""
TAG_COSTS_BYTES: Final = 8
"""What a tag takes beside its text in an index over all tags of a job. PostgreSQL takes no row
there that is longer than a third of a page.
"""
MAX_TAG_CHARACTERS: Final = TAGS_BYTES - TAG_COSTS_BYTES
"""The longest that a setting may allow: those of one job together leave no room for more."""
MAX_ID_CHARACTERS: Final = 330
"""The longest that a setting may allow. PostgreSQL takes no row of an index that is longer than
2,704 bytes; some have two such names and up to 40 bytes beside them, and a character may take four.
"""
NAME_CHARACTERS: Final = 512
"""Of a replica and of a bucket of tokens, which are alone in their index."""
MAX_TRACESTATE_CHARACTERS: Final = 512
SPAWN_DEPTH: Final = 100
"""Generations of children below a job that came from outside, unless a quota says otherwise."""
BATCH_JOBS: Final = 1000
BATCH_DEPENDENCIES: Final = 10_000
"""Of one submission through a door, unless the settings say otherwise. A store takes more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes that settings may change: bytes for payloads, characters for texts, entries for
    collections. `callbacks` is where callbacks may go, None where this is left to another.
    """

    payload_bytes: int = 1024 * 1024
    result_bytes: int = 1024 * 1024
    checkpoint_bytes: int = 1024 * 1024
    tags: int = 32
    tag_characters: int = 128
    id_characters: int = 255
    dependencies: int = 1000
    error_characters: int = 8192
    stack_characters: int = 65_536
    callbacks: Reach | None = None


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A row of the table of what no setting changes: a number, or a length, of a field."""

    of: str
    kind: str
    least: float
    most: float
    what: str


BOUNDS: Final = (
    Bound(
        of="delay, timeout, initial_delay, max_delay, retry_after",
        kind="duration",
        least=0,
        most=MAX_DURATION_S,
        what="Seconds, up to a century; a timeout is above 0.",
    ),
    Bound(
        of="max_attempts",
        kind="whole number",
        least=1,
        most=MAX_ATTEMPTS_BOUND,
        what="In the library and over gRPC also 0: what the handler says.",
    ),
    Bound(
        of="backoff.multiplier",
        kind="number",
        least=1,
        most=MAX_MULTIPLIER,
        what="Growth per retry.",
    ),
    Bound(
        of="backoff.delays",
        kind="durations",
        least=1,
        most=MAX_DELAYS,
        what="Entries; for the strategy CUSTOM, and for no other.",
    ),
    Bound(
        of="capacity, concurrency, max_assigned_jobs",
        kind="whole number",
        least=1,
        most=MAX_CAPACITY,
        what="Jobs at a time. A QueueWorker may be set to 0: no new jobs.",
    ),
    Bound(
        of="types",
        kind="texts",
        least=0,
        most=MAX_TYPES,
        what="Handlers of one worker; none: any type.",
    ),
    Bound(
        of="reason",
        kind="text",
        least=0,
        most=REASON_CHARACTERS,
        what="Characters; of a cancel or a pause.",
    ),
    Bound(
        of="tracestate",
        kind="text",
        least=0,
        most=MAX_TRACESTATE_CHARACTERS,
        what="Characters; a longer one is left out at REST, gRPC and resources.",
    ),
    Bound(
        of="tags",
        kind="bytes",
        least=0,
        most=TAGS_BYTES,
        what="Of one job's tags together, eight counted for each beside its text.",
    ),
    Bound(
        of="callback_url",
        kind="text",
        least=1,
        most=MAX_URL_CHARACTERS,
        what="Characters.",
    ),
)
