"""Many streams as one: in order, whole, and read no further than needed."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.backends.postgres.merging import Fetched, Merge, Place, Seen, Stream, TooFar

START = (-1, 0)
END = (10**6, 0)
# A job and whether it matches; lanes may hold jobs of the same time, but not the same number.
_jobs = st.dictionaries(
    st.integers(0, 400), st.tuples(st.integers(0, 30), st.booleans()), max_size=60
)


@dataclass
class Store:
    """Lanes in memory, read as the statements read them."""

    lanes: Sequence[Sequence[tuple[Place, bool]]]
    descending: bool = False
    fetches: int = 0
    looked: Counter[int] = field(default_factory=Counter)

    async def fetch(
        self, source: str, streams: Sequence[Stream[str]], want: int, end: Place | None
    ) -> Fetched:
        self.fetches += 1
        assert len({stream.look for stream in streams}) == 1
        lanes = [(lane, stream) for stream in streams for lane in stream.lanes]
        assert len(lanes) == len({lane for lane, _ in lanes})
        assert {lane % 2 for lane, _ in lanes} == {int(source[-1])}
        every = sorted(
            (row for lane, stream in lanes for row in self._rows(lane, stream, want, end)),
            reverse=self.descending,
        )
        give = want + len(lanes)
        return Fetched(every[:give], every[give - 1].place if len(every) >= give else None)

    def _rows(self, lane: int, stream: Stream[str], want: int, end: Place | None) -> list[Seen]:
        left = [
            one
            for one in sorted(self.lanes[lane], reverse=self.descending)
            if self._is_before(stream.place, one[0])
            and (end is None or not self._is_before(end, one[0]))
        ][: stream.look]
        rows = []
        for n, (place, matched) in enumerate(left, start=1):
            self.looked[lane] += 1
            if matched or n == stream.look:
                rows.append(Seen(place, place[0], matched, n == stream.look, lane))
            if len(rows) == want:
                break
        return rows

    def _is_before(self, place: Place, other: Place) -> bool:
        return place > other if self.descending else place < other

    def merge(self, look: int, most: int | None = None) -> Merge[str]:
        start = END if self.descending else START
        numbers = range(len(self.lanes))
        halves = [numbers[n::2] for n in range(2)]
        streams = [
            Stream(f"source-{n}", half, start, look) for n, half in enumerate(halves) if half
        ]
        return Merge(streams, self.fetch, descending=self.descending, most=most)


def spread(jobs: Mapping[int, tuple[int, bool]], lanes: int) -> list[list[tuple[Place, bool]]]:
    placed: list[list[tuple[Place, bool]]] = [[] for _ in range(lanes)]
    for number, (at, matched) in jobs.items():
        placed[number % lanes].append(((at, number), matched))
    return placed


@given(
    jobs=_jobs,
    lanes=st.integers(1, 7),
    look=st.integers(1, 9),
    counts=st.lists(st.integers(0, 20), max_size=5),
    descending=st.booleans(),
)
def test_all_matches_come_once_and_in_order(
    jobs: dict[int, tuple[int, bool]],
    lanes: int,
    look: int,
    counts: list[int],
    descending: bool,
) -> None:
    store = Store(spread(jobs, lanes), descending)
    expected = sorted(
        ((at, number) for number, (at, matched) in jobs.items() if matched), reverse=descending
    )

    async def run() -> None:
        merge = store.merge(look)
        left = expected
        for count in [*counts, 1000]:
            taken = await merge.take(count)
            assert [seen.place for seen in taken] == left[:count]
            left = left[count:]
        assert left == []

    asyncio.run(run())


async def test_no_stream_is_read_again_from_its_beginning() -> None:
    store = Store(spread({n: (n, n % 10 == 0) for n in range(400)}, 4))
    assert len(await store.merge(look=3).take(1000)) == 40
    assert set(store.looked.values()) == {100}


async def test_the_next_take_looks_again_at_little_more_than_the_last_one_gave_away() -> None:
    store = Store(spread({n: (n, n % 10 == 0) for n in range(400)}, 4))
    merge = store.merge(look=3)
    while await merge.take(7):
        pass
    assert max(store.looked.values()) < 150


async def test_what_lies_beyond_the_page_is_not_looked_at_in_other_sources() -> None:
    """The second source has what is as far away as the first one's second page."""
    near = {n * 2: (n, True) for n in range(100)}
    far = {n * 2 + 1: (50 + n, True) for n in range(100)}
    store = Store(spread(near | far, 2))
    taken = await store.merge(look=100).take(50)
    assert [seen.place[1] for seen in taken] == [n * 2 for n in range(50)]
    assert store.looked[1] == 0


async def test_a_page_reads_little_more_than_itself() -> None:
    """A hundred lanes, of which one has the first thousand."""
    first = {n * 100: (n, True) for n in range(1000)}
    others = {n: (5000 + n, True) for n in range(1, 100)}
    store = Store(spread(first | others, 100))
    taken = await store.merge(look=3).take(50)
    assert [seen.place[1] for seen in taken] == [n * 100 for n in range(50)]
    assert store.looked.total() < 100 * 3 + 4 * 50
    assert store.fetches < 2 + 4


async def test_a_lane_without_matches_is_looked_through_only_as_far_as_others_go() -> None:
    sparse = {n * 2: (n, False) for n in range(10_000)}
    dense = {n * 2 + 1: (n, True) for n in range(10_000)}
    store = Store(spread(sparse | dense, 2))
    await store.merge(look=10).take(100)
    assert store.looked[0] < 1000


async def test_what_would_look_at_too_much_is_given_up_before() -> None:
    store = Store(spread({n: (n, n == 5000) for n in range(5001)}, 1))
    with pytest.raises(TooFar):
        await store.merge(look=10, most=1000).take(1)
    assert store.looked.total() <= 1000
    assert [seen.place for seen in await store.merge(look=10, most=20_000).take(1)] == [
        (5000, 5000)
    ]


async def test_the_first_look_is_always_allowed() -> None:
    store = Store(spread({n: (n, True) for n in range(100)}, 10))
    assert len(await store.merge(look=5, most=1).take(3)) == 3
