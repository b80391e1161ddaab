"""Worker sessions: who has one, and what it is ordered to do."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any, Final

import pytest

from queue_operator.backends.lost_workers import Loss
from queue_operator.backends.protocol import (
    SessionNews,
    SessionOrder,
    SessionRoll,
    Sessions,
    WorkerSession,
)
from queue_operator.domain.errors import Forbidden, InvalidArgument
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.walking import walk
from queue_operator.testing.wrong import IDS, NAN, TEXTS, UNSTORABLE

_OTHER_WORKERS = (
    {"namespace": "other"},
    {"worker_name": "other"},
    {"pod_uid": "other"},
)


def _session(session_id: str = "s-1", **fields: Any) -> WorkerSession:
    values = {"namespace": "team", "worker_name": "mailer", "pod_uid": "pod", "connection": "c-1"}
    return WorkerSession(session_id=session_id, **(values | fields))


def _sessions(backend: Contract) -> Sessions:
    assert isinstance(backend, Sessions)
    return backend


async def test_the_newest_connection_has_the_session(backend: Contract) -> None:
    sessions, older, newer = _sessions(backend), _session(busy=1), _session(connection="c-2")
    opened = await sessions.open_session(older)
    assert opened == SessionNews(session_id="s-1", connection="c-1")
    assert await sessions.session_news([older]) == []
    await sessions.open_session(newer)
    assert await sessions.session_news([older]) == [replace(opened, connection="c-2")]
    await sessions.touch_sessions([replace(older, busy=7, draining=True)])
    [listed] = await sessions.list_sessions()
    assert (listed.connection, listed.busy, listed.draining) == ("c-2", 0, False)
    assert await sessions.session_news([newer]) == []


@pytest.mark.parametrize("fields", _OTHER_WORKERS)
async def test_no_other_worker_gets_the_session(backend: Contract, fields: dict[str, str]) -> None:
    sessions = _sessions(backend)
    await sessions.open_session(_session(capacity=3))
    with pytest.raises(Forbidden, match="s-1"):
        await sessions.open_session(_session(connection="c-2", capacity=9, **fields))
    [listed] = await sessions.list_sessions()
    assert (listed.connection, listed.capacity, listed.namespace) == ("c-1", 3, "team")


async def test_a_session_that_is_not_stored_is_news(backend: Contract) -> None:
    sessions = _sessions(backend)
    await sessions.open_session(_session("s-2"))
    await sessions.close_sessions(["s-2"])
    assert await sessions.session_news([_session("s-2")]) == [SessionNews(session_id="s-2")]
    assert await sessions.session_news([]) == []


async def test_an_order_is_news_until_it_is_followed(backend: Contract) -> None:
    sessions, mine = _sessions(backend), _session()
    await sessions.open_session(mine)
    await sessions.open_session(_session("s-2"))
    order = SessionOrder(capacity=2, tags=frozenset({"eu", "gpu"}), drain=True)
    await sessions.order_session("s-1", order)
    [news] = await sessions.session_news([mine, _session("s-2")])
    assert (news.session_id, news.connection, news.order) == ("s-1", "c-1", order)
    follows = replace(mine, followed=news.order_number)
    await sessions.touch_sessions([follows])
    assert await sessions.session_news([follows]) == []
    [listed, _] = sorted(await sessions.list_sessions(), key=lambda one: one.session_id)
    assert (listed.order, listed.shown) == (order, True)
    assert listed.followed == listed.order_number == news.order_number
    assert (listed.capacity, listed.tags) == (mine.capacity, mine.tags)


async def test_the_same_order_again_is_none(backend: Contract) -> None:
    sessions = _sessions(backend)
    await sessions.open_session(_session())
    await sessions.order_session("s-1", SessionOrder())
    [first] = await sessions.list_sessions()
    assert (first.shown, first.order) == (True, SessionOrder())
    await sessions.order_session("s-1", SessionOrder())
    await sessions.order_session("nobody", SessionOrder(capacity=1))
    [again] = await sessions.list_sessions()
    assert again.order_number == first.order_number
    for order in (SessionOrder(tags=frozenset()), SessionOrder(drain=False), SessionOrder()):
        await sessions.order_session("s-1", order)
        [listed] = await sessions.list_sessions()
        assert listed.order == order


async def test_orders_outlive_a_reconnect(backend: Contract) -> None:
    sessions, order = _sessions(backend), SessionOrder(capacity=5)
    await sessions.open_session(_session())
    await sessions.order_session("s-1", order)
    again = await sessions.open_session(_session(connection="c-2", followed=1))
    assert (again.order, again.connection) == (order, "c-2")
    [listed] = await sessions.list_sessions()
    assert (listed.order, listed.followed, listed.shown) == (order, 0, True)


async def test_an_ended_session_is_not_opened_again(backend: Contract, store: Store) -> None:
    sessions, mine = _sessions(backend), _session(replica="r")
    await sessions.open_session(mine)
    await sessions.order_session("s-1", SessionOrder(ended=True))
    await sessions.order_session("s-1", SessionOrder(capacity=1))
    [news] = await sessions.session_news([mine])
    assert news.order == SessionOrder(ended=True)
    await sessions.touch_sessions([replace(mine, followed=news.order_number)])
    assert len(await sessions.session_news([replace(mine, followed=news.order_number)])) == 1
    await sessions.close_sessions(["s-1"], replica="r")
    await sessions.close_sessions(["s-1"])
    assert await sessions.list_sessions() == []
    with pytest.raises(Forbidden):
        await sessions.open_session(_session(connection="c-2"))


async def test_sessions_are_kept_by_their_roll(backend: Contract) -> None:
    sessions = _sessions(backend)
    mine = [_session(f"s-{n}", connection=f"c-{n}", replica="r") for n in range(3)]
    for one in mine:
        await sessions.open_session(one)
    await sessions.open_session(_session("s-3", replica="other"))
    assert await sessions.keep_sessions(SessionRoll.of("r", mine))
    assert await sessions.keep_sessions(SessionRoll.of("r", mine[::-1]))
    assert not await sessions.keep_sessions(SessionRoll.of("r", mine[1:]))
    assert not await sessions.keep_sessions(SessionRoll.of("r", [*mine, mine[0]]))
    assert not await sessions.keep_sessions(SessionRoll.of("nobody", []))


_OTHER_HANDS = ("another connection", "another replica", "gone", "an order", "ended")


@pytest.mark.parametrize("what", _OTHER_HANDS)
async def test_a_roll_with_a_session_in_other_hands_keeps_none(
    backend: Contract, what: str
) -> None:
    sessions = _sessions(backend)
    mine = [_session(f"s-{n}", connection=f"c-{n}", replica="r") for n in range(2)]
    for one in mine:
        await sessions.open_session(one)
    roll = SessionRoll.of("r", mine)
    assert await sessions.keep_sessions(roll)
    match what:
        case "another connection":
            await sessions.open_session(replace(mine[0], connection="c-9"))
        case "another replica":
            await sessions.open_session(replace(mine[0], replica="other"))
        case "gone":
            await sessions.close_sessions(["s-0"])
        case "an order":
            await sessions.order_session("s-0", SessionOrder(capacity=1))
        case "ended":
            await sessions.order_session("s-0", SessionOrder(ended=True))
    before = await sessions.list_sessions()
    assert not await sessions.keep_sessions(roll)
    assert await sessions.list_sessions() == before


async def test_a_roll_holds_again_once_the_order_is_followed(backend: Contract) -> None:
    sessions, mine = _sessions(backend), _session(replica="r")
    await sessions.open_session(mine)
    await sessions.order_session("s-1", SessionOrder(capacity=1))
    [news] = await sessions.session_news([mine])
    await sessions.touch_sessions([replace(mine, followed=news.order_number)])
    assert await sessions.keep_sessions(SessionRoll.of("r", [mine]))


async def test_who_opens_a_session_is_told_whose_it_was(backend: Contract) -> None:
    sessions = _sessions(backend)
    assert (await sessions.open_session(_session("s", connection="c-1"))).previous == ""
    assert (await sessions.open_session(_session("s", connection="c-2"))).previous == "c-1"
    assert (await sessions.open_session(_session("other", connection="c-3"))).previous == ""
    assert (await sessions.open_session(_session("s", connection="c-4"))).previous == "c-2"
    await sessions.close_sessions(["s"])
    assert (await sessions.open_session(_session("s", connection="c-5"))).previous == ""


async def test_a_cancelled_opening_is_found_by_a_repeat(backend: Contract) -> None:
    names = count()

    async def bring() -> WorkerSession:
        return _session(f"cancelled-{next(names)}")

    async def call(session: WorkerSession) -> SessionNews:
        return await _sessions(backend).open_session(session)

    walked = [one async for one in walk(bring, call)]
    for one in walked:
        opened = await _sessions(backend).open_session(one.subject)
        first = SessionNews(session_id=one.subject.session_id, connection="c-1")
        # Where it was stored after all, it is the one before, too.
        assert opened in (first, replace(first, previous="c-1")), one
    assert len(await _sessions(backend).list_sessions()) == len(walked)


async def test_a_cancelled_closing_is_found_by_a_repeat(backend: Contract) -> None:
    names = count()

    async def bring() -> WorkerSession:
        session = _session(f"closed-{next(names)}")
        await _sessions(backend).open_session(session)
        return session

    async def call(session: WorkerSession) -> list[WorkerSession]:
        await _sessions(backend).close_sessions([session.session_id])
        return await _sessions(backend).list_sessions()

    async for one in walk(bring, call):
        assert one.cancelled or one.answers == ([],), one
        assert await call(one.subject) == [], one


async def test_a_lost_worker_is_told_of(backend: Contract) -> None:
    sessions = _sessions(backend)
    types = frozenset({"mail"})
    await sessions.open_session(_session("s-1", types=types, capacity=4, host="h", replica="r"))
    await sessions.open_session(_session("s-2", worker_name="other", namespace="elsewhere"))
    await sessions.lose_sessions([Loss(session_id="s-1", jobs=3), Loss(session_id="nobody")])
    await sessions.lose_sessions([Loss(session_id="s-2", ago_s=1.0)], replica="")
    assert await sessions.list_sessions() == []
    [lost] = await sessions.lost_workers("team")
    assert (lost.session_id, lost.worker_name, lost.namespace) == ("s-1", "mailer", "team")
    assert (lost.types, lost.capacity, lost.host, lost.jobs) == (types, 4, "h", 3)
    assert [one.session_id for one in await sessions.lost_workers("elsewhere")] == ["s-2"]
    assert await sessions.lost_workers("nowhere") == []


async def test_the_last_lost_are_told_of_first_and_the_old_not_at_all(backend: Contract) -> None:
    sessions = _sessions(backend)
    for name in ("old", "first", "last"):
        await sessions.open_session(_session(name, worker_name=name))
    for name, ago_s in (("last", 1.0), ("old", 601.0), ("first", 60.0)):
        await sessions.lose_sessions([Loss(session_id=name, ago_s=ago_s)])
    last, first = await sessions.lost_workers("team")
    assert (last.worker_name, first.worker_name) == ("last", "first")
    assert 58 < (last.lost_at - first.lost_at).total_seconds() < 120


async def test_a_worker_that_comes_back_is_lost_no_more(backend: Contract) -> None:
    sessions = _sessions(backend)
    for name in ("s-1", "s-2"):
        await sessions.open_session(_session(name, worker_name=name))
    await sessions.lose_sessions([Loss(session_id="s-1"), Loss(session_id="s-2")])
    await sessions.open_session(_session("again", worker_name="s-1", pod_uid="new"))
    assert [one.session_id for one in await sessions.lost_workers("team")] == ["s-2"]
    await sessions.close_sessions(["again"])
    assert [one.session_id for one in await sessions.lost_workers("team")] == ["s-2"]
    await sessions.open_session(_session("s-2", worker_name="s-2"))
    assert await sessions.lost_workers("team") == []


async def test_what_is_closed_by_another_hand_is_not_lost(backend: Contract) -> None:
    sessions = _sessions(backend)
    for name in ("moved", "ended", "closed"):
        await sessions.open_session(_session(name, worker_name=name, replica="r"))
    await sessions.open_session(_session("moved", worker_name="moved", replica="other"))
    await sessions.order_session("ended", SessionOrder(ended=True))
    await sessions.close_sessions(["closed"])
    losses = [Loss(session_id=name) for name in ("moved", "ended", "closed")]
    await sessions.lose_sessions(losses, replica="r")
    assert await sessions.lost_workers("team") == []
    assert [one.session_id for one in await sessions.list_sessions()] == ["moved"]


@pytest.mark.parametrize(
    ("loss", "field"),
    [
        (Loss(session_id=""), "session_id"),
        (Loss(session_id="s", jobs=-1), "jobs"),
        (Loss(session_id="s", ago_s=NAN), "ago_s"),
    ],
)
async def test_a_loss_that_is_none_is_refused(backend: Contract, loss: Loss, field: str) -> None:
    with pytest.raises(InvalidArgument, match=field) as caught:
        await _sessions(backend).lose_sessions([Loss(session_id="good"), loss])
    assert caught.value.field == f"losses[1].{field}"
    with pytest.raises(InvalidArgument, match="namespace"):
        await _sessions(backend).lost_workers("")


_NO_COUNTS: Final = (-1, 1.5, True, "1", None)
_Call = Callable[[Sessions, Any], Awaitable[object]]
_WRONG: Final[list[tuple[str, str, _Call, tuple[Any, ...]]]] = [
    ("open", "session", lambda b, x: b.open_session(x), (None, 7, "x", [_session()])),
    *(
        (
            "open",
            f"session.{field}",
            lambda b, x, f=field: b.open_session(_session(**{f: x})),
            values,
        )
        for field, values in {
            "session_id": UNSTORABLE,
            "namespace": UNSTORABLE,
            "worker_name": TEXTS,
            "host": TEXTS,
            "connection": TEXTS,
            "capacity": _NO_COUNTS,
            "busy": _NO_COUNTS,
            "draining": (None, 1, "no"),
            "tags": IDS,
            "types": IDS,
        }.items()
    ),
    ("touch", "sessions", lambda b, x: b.touch_sessions(x), (None, 7, "x")),
    ("touch", "sessions[0]", lambda b, x: b.touch_sessions([x]), (None, 7, "x")),
    ("touch", "sessions[0].busy", lambda b, x: b.touch_sessions([_session(busy=x)]), _NO_COUNTS),
    (
        "touch",
        "sessions[0].connection",
        lambda b, x: b.touch_sessions([_session(connection=x)]),
        TEXTS,
    ),
    ("keep", "roll", lambda b, x: b.keep_sessions(x), (None, 7, "x")),
    (
        "keep",
        "roll.count",
        lambda b, x: b.keep_sessions(SessionRoll(replica="r", count=x)),
        _NO_COUNTS,
    ),
    (
        "keep",
        "roll.mark",
        lambda b, x: b.keep_sessions(SessionRoll(replica="r", mark=x)),
        (None, "x", 1.5),
    ),
    ("news", "sessions[0]", lambda b, x: b.session_news([x]), (None, 7, "x")),
    ("order", "session_id", lambda b, x: b.order_session(x, SessionOrder()), UNSTORABLE),
    ("order", "order", lambda b, x: b.order_session("s-1", x), (None, 7, "x")),
    (
        "order",
        "order.capacity",
        lambda b, x: b.order_session("s-1", SessionOrder(capacity=x)),
        (-1, 1.5, True, "1"),
    ),
    (
        "order",
        "order.drain",
        lambda b, x: b.order_session("s-1", SessionOrder(drain=x)),
        (1, "no"),
    ),
    (
        "order",
        "order.ended",
        lambda b, x: b.order_session("s-1", SessionOrder(ended=x)),
        (None, 0, "no"),
    ),
    ("close", "session_ids", lambda b, x: b.close_sessions(x), IDS),
    ("list", "max_age_s", lambda b, x: b.list_sessions(max_age_s=x), (0, -1, NAN, 1e300, "1")),
]


@pytest.mark.parametrize(
    ("field", "call", "values"),
    [pytest.param(*row[1:], id=f"{n}-{row[0]}-{row[1]}") for n, row in enumerate(_WRONG)],
)
async def test_what_is_no_session_is_refused_and_in_nobodys_way(
    backend: Contract, field: str, call: _Call, values: tuple[Any, ...]
) -> None:
    sessions = _sessions(backend)
    await sessions.open_session(_session())
    before = await sessions.list_sessions()
    for value in values:
        with pytest.raises(InvalidArgument) as refused:
            await call(sessions, value)
        assert refused.value.field == field, value
    assert await sessions.list_sessions() == before
