"""What one claim asks for, so that streams share fairly and no limit is exceeded. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Generic, Protocol, TypeVar

from queue_operator.domain.job import Demand, TypeDefaults
from queue_operator.domain.tags import matches
from queue_operator.queue.capacity import Slots, share
from queue_operator.queue.protocol import HandlerType, StreamSpec

STREAMS_PER_CLAIM: Final = 256
"""More would make each claim dear while a thousand workers idle; the others come next."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a claim selects by. No `types`: any type."""

    namespace: str
    tags: frozenset[str]
    types: frozenset[str]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Filters are looked up for every stream in every claim.
        object.__setattr__(self, "_hash", hash((self.namespace, self.tags, self.types)))

    def __hash__(self) -> int:
        return self._hash

    def accepts(self, namespace: str, job_type: str, tags: frozenset[str]) -> bool:
        return (
            namespace == self.namespace
            and (not self.types or job_type in self.types)
            and matches(self.tags, tags)
        )


@lru_cache(maxsize=10_000)
def specimen(wanted: Filter) -> Demand:
    """Any stream's demand by this filter."""
    return Demand(
        assignee_id="any",
        limit=1,
        namespace=wanted.namespace,
        tags=wanted.tags,
        types=wanted.types,
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Types of a stream that one demand may ask for together: one type with a limit of its
    own (`limited`), or all types that have none.
    """

    filter: Filter
    limited: str | None = None


def type_limits(spec: StreamSpec) -> dict[str, int]:
    """Limits that bind: a concurrency at or above the capacity does not."""
    return {
        handler.type: handler.concurrency
        for handler in spec.types
        if handler.concurrency is not None and handler.concurrency < spec.capacity
    }


@lru_cache(maxsize=10_000)
def _shared(namespace: str, tags: frozenset[str], types: frozenset[str]) -> Filter:
    """One object for all streams that ask for the same: equal ones are told apart slowly."""
    return Filter(namespace, tags, types)


def groups_of(spec: StreamSpec) -> tuple[Group, ...]:
    limits = type_limits(spec)
    single = [Group(_shared(spec.namespace, spec.tags, frozenset({name})), name) for name in limits]
    rest = frozenset(handler.type for handler in spec.types if handler.type not in limits)
    if rest or not spec.types:
        single.append(Group(_shared(spec.namespace, spec.tags, rest)))
    return tuple(single)


def defaults_of(spec: StreamSpec) -> Mapping[str, TypeDefaults]:
    return _defaults(spec.types)


@lru_cache
def _defaults(types: tuple[HandlerType, ...]) -> Mapping[str, TypeDefaults]:
    """One object for all streams that register the same, so that comparing is cheap."""
    return {handler.type: handler.defaults for handler in types}


class Asking(Protocol):
    """What a plan needs to know of a stream."""

    @property
    def spec(self) -> StreamSpec: ...

    @property
    def slots(self) -> Slots: ...

    @property
    def groups(self) -> tuple[Group, ...]: ...

    @property
    def defaults(self) -> Mapping[str, TypeDefaults]: ...

    @property
    def accepting(self) -> bool: ...


AnyStream = TypeVar("AnyStream", bound=Asking)


@dataclass(slots=True)
class Round(Generic[AnyStream]):
    """One claim: `asked` counts by filter, `streams` take part, by assignee id.

    `put_off` says that a stream must wait for another round: this one is full, the stream's
    registrations disagree with another's, or it shares that one's assignee id.
    """

    demands: list[Demand] = field(default_factory=list)
    asked: Counter[Filter] = field(default_factory=Counter)
    streams: dict[str, AnyStream] = field(default_factory=dict)
    defaults: dict[str, TypeDefaults] = field(default_factory=dict)
    put_off: bool = False
    _agreed: set[int] = field(default_factory=set)

    def admit(self, stream: AnyStream) -> bool:
        if stream.spec.assignee_id in self.streams or not self._agrees(stream.defaults):
            self.put_off = True
            return False
        self.streams[stream.spec.assignee_id] = stream
        return True

    def _agrees(self, defaults: Mapping[str, TypeDefaults]) -> bool:
        if id(defaults) not in self._agreed:
            if any(self.defaults.get(name, value) != value for name, value in defaults.items()):
                return False
            self.defaults.update(defaults)
            self._agreed.add(id(defaults))
        return True


def plan(streams: Iterable[AnyStream], hungry: Collection[Filter], batch: int) -> Round[AnyStream]:
    """Demands for at most `batch` jobs in all, split evenly over streams with free slots.

    Only filters in `hungry` are asked for. Earlier streams get what does not divide; of
    more than STREAMS_PER_CLAIM the later ones are put off.
    """
    planned: Round[AnyStream] = Round()
    wanting: list[tuple[AnyStream, list[Group], list[int]]] = []
    for stream in streams:
        if not stream.accepting or not stream.slots.free:
            continue
        groups = [group for group in stream.groups if group.filter in hungry]
        wants = [_free(stream.slots, group) for group in groups]
        if not any(wants):
            continue
        if len(wanting) == STREAMS_PER_CLAIM:
            planned.put_off = True
            break
        if planned.admit(stream):
            wanting.append((stream, groups, wants))
    totals = [min(stream.slots.free, sum(wants)) for stream, _, wants in wanting]
    for (stream, groups, wants), total in zip(wanting, share(batch, totals), strict=True):
        _ask(planned, stream.spec, groups, share(total, wants))
    return planned


def _free(slots: Slots, group: Group) -> int:
    return slots.free if group.limited is None else slots.free_for(group.limited)


def _ask(
    planned: Round[AnyStream], spec: StreamSpec, groups: Sequence[Group], limits: Sequence[int]
) -> None:
    for group, limit in zip(groups, limits, strict=True):
        if limit:
            planned.asked[group.filter] += limit
            planned.demands.append(
                Demand(
                    assignee_id=spec.assignee_id,
                    limit=limit,
                    namespace=spec.namespace,
                    tags=spec.tags,
                    types=group.filter.types,
                    worker_name=spec.worker_name,
                    host=spec.host,
                )
            )
