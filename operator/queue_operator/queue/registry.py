"""The open streams of this process, and whose streams left jobs with their worker."""

import itertools
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Final

from queue_operator.backends.lost_workers import Loss
from queue_operator.backends.protocol import Kind
from queue_operator.domain.clock import Clock
from queue_operator.domain.job import CancelRequest
from queue_operator.domain.lease import Lost
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import ELIGIBLE
from queue_operator.queue.capacity import JobKey
from queue_operator.queue.demand import Filter, Group
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.sessions import loss_of
from queue_operator.queue.stream import JobStream

Owner = tuple[str, str]
"""Namespace and assignee id: one alone proves nothing about whose the jobs are."""


MOST_KINDS_REMEMBERED: Final = 10_000
LEFT_FOR_S: Final = 3600.0
"""Leases run out much sooner, but for the time that the store is away."""


class StreamRegistry:
    """Routes news about jobs to the streams they were assigned to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._streams: dict[str, list[JobStream]] = {}
        self._filters: dict[Filter, dict[JobStream, None]] = {}
        self._matching: dict[Kind, tuple[Filter, ...]] = {}
        self._parked: dict[Owner, tuple[float, Loss | None]] = {}
        self._left: dict[str, float] = {}
        self._orders = itertools.count(1)
        self._last_order = 0
        # Those that were given jobs last come last.
        self._order: dict[JobStream, None] = {}

    def next_order(self) -> int:
        self._last_order = next(self._orders)
        return self._last_order

    @property
    def last_order(self) -> int:
        """Assignments up to this one were made before now."""
        return self._last_order

    def add(self, stream: JobStream) -> None:
        self._streams.setdefault(stream.spec.assignee_id, []).append(stream)
        self._order[stream] = None
        self._ask(stream, stream.groups)

    def remove(self, stream: JobStream) -> None:
        """Forgets the stream, but for a while not that its worker took jobs along."""
        siblings = self._streams.get(stream.spec.assignee_id, [])
        if stream in siblings:
            siblings.remove(stream)
            del self._order[stream]
            self._ask_no_more(stream, stream.groups)
        if not siblings:
            self._streams.pop(stream.spec.assignee_id, None)
        now_s = self._clock.monotonic()
        left = sum(1 for _ in stream.left_tokens())
        if left and not stream.renewed_by_queue:
            self._parked[_owner(stream.spec)] = now_s, loss_of(stream, left)
        self._left.update(dict.fromkeys(stream.left_tokens(), now_s))

    def refilter(self, stream: JobStream, before: Sequence[Group]) -> None:
        """The stream asks by other groups than `before`."""
        if stream in self._order:
            self._ask_no_more(stream, before)
            self._ask(stream, stream.groups)

    def _ask(self, stream: JobStream, groups: Sequence[Group]) -> None:
        for group in groups:
            self._filters.setdefault(group.filter, {})[stream] = None
        self._matching.clear()

    def _ask_no_more(self, stream: JobStream, groups: Sequence[Group]) -> None:
        for group in groups:
            asking = self._filters.get(group.filter, {})
            asking.pop(stream, None)
            if not asking:
                self._filters.pop(group.filter, None)
        self._matching.clear()

    def unpark(self, spec: StreamSpec) -> None:
        """The worker is back."""
        self._parked.pop(_owner(spec), None)

    def is_parked(self, spec: StreamSpec) -> bool:
        """The worker's last stream here left it with jobs, and it has not come back yet."""
        return _owner(spec) in self._parked

    def was_left(self, token: str) -> bool:
        """A stream that has ended had given the job to its worker, who may have begun it."""
        return token in self._left

    def forget_parked(self, older_than_s: float) -> dict[str, Loss | None]:
        """Assignees that did not come back in time, and which of them were lost; their leases have
        run out.
        """
        now_s = self._clock.monotonic()
        limit_s = now_s - older_than_s
        self._forget_left()
        gone = {owner: one for owner, one in self._parked.items() if one[0] < limit_s}
        for owner in gone:
            del self._parked[owner]
        return {
            assignee_id: loss and replace(loss, ago_s=now_s - since_s)
            for (_, assignee_id), (since_s, loss) in gone.items()
        }

    def _forget_left(self) -> None:
        limit_s = self._clock.monotonic() - LEFT_FOR_S
        # They came in the order of time.
        for token in list(itertools.takewhile(lambda one: self._left[one] < limit_s, self._left)):
            del self._left[token]

    def all(self) -> list[JobStream]:
        """Those that have waited longest for a job come first."""
        return list(self._order)

    def served(self, stream: JobStream) -> None:
        """The stream was given jobs: others come first now."""
        if stream in self._order:
            del self._order[stream]
            self._order[stream] = None

    def of(self, assignee_id: str) -> list[JobStream]:
        return list(self._streams.get(assignee_id, ()))

    def assignee_ids(self) -> list[str]:
        return list(self._streams)

    def filters(self) -> Set[Filter]:
        return self._filters.keys()

    def idle_filters(self) -> set[Filter]:
        """Those by which a stream asks that has a slot free."""
        return {
            one
            for one, streams in self._filters.items()
            if any(stream.accepting and stream.slots.free for stream in streams)
        }

    def matching(self, kind: Kind) -> tuple[Filter, ...]:
        """The filters that accept such jobs. Remembered while the filters stay the same."""
        known = self._matching.get(kind)
        if known is None:
            if len(self._matching) >= MOST_KINDS_REMEMBERED:
                self._matching.clear()
            known = tuple(one for one in self._filters if one.accepts(*kind))
            self._matching[kind] = known
        return known

    # News

    def settled(self, outcomes: Sequence[Outcome], answers: Sequence[Settled]) -> bool:
        """Gives slots back; True when a job became eligible again."""
        for outcome, answer in zip(outcomes, answers, strict=True):
            if answer.freed_assignee_id is not None:
                key = (answer.namespace, answer.job_id)
                for stream in self.of(answer.freed_assignee_id):
                    stream.left(key, outcome.token)
        return any(answer.state in ELIGIBLE for answer in answers)

    def freed(self, assignee_ids: Iterable[str], key: JobKey, before: int) -> None:
        """A library call took one job away; one assigned again meanwhile stays."""
        for assignee_id in assignee_ids:
            for stream in self.of(assignee_id):
                stream.lose(key, before=before)

    def lost_all(self, assignee_ids: Iterable[str], before: int) -> None:
        for assignee_id in assignee_ids:
            for stream in self.of(assignee_id):
                stream.lose_all(before=before)

    def lost(self, jobs: Iterable[Lost], before: int) -> None:
        for job in jobs:
            for stream in self.of(job.assignee_id):
                stream.lose((job.namespace, job.job_id), before=before)

    def cancel(self, requests: Iterable[CancelRequest]) -> None:
        for request in requests:
            for stream in self.of(request.assignee_id):
                # Another namespace's worker must not learn the token, whatever id it took.
                if stream.spec.namespace == request.namespace:
                    stream.cancel(request)


def _owner(spec: StreamSpec) -> Owner:
    return (spec.namespace, spec.assignee_id)
