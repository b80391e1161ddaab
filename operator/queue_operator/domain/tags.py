"""Tags: a job's are labels, a worker's are demands."""

from collections.abc import Iterable, Mapping

from queue_operator.domain.errors import InvalidArgument


def matches(demanded: Iterable[str], carried: frozenset[str]) -> bool:
    """True when the job carries every tag the worker demands; no demand matches all."""
    return carried.issuperset(demanded)


def from_map(tags: Mapping[str, str]) -> frozenset[str]:
    """The tag map of `external-api.md` as a set: `key=value`, or the bare key if empty.

    Raises InvalidArgument when a key is empty or holds `=`.
    """
    for key in tags:
        if not key or "=" in key:
            raise InvalidArgument(f"tags.{key}", "a tag key must not be empty or contain '='")
    return frozenset(f"{key}={value}" if value else key for key, value in tags.items())


def to_map(tags: Iterable[str]) -> dict[str, str]:
    """The inverse of `from_map`; of two values of one key the greater is shown."""
    split = (tag.partition("=") for tag in sorted(tags))
    return {key: value for key, _, value in split}
