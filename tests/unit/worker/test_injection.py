"""Dependencies and the lifespan."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from queue_operator.testing.clauses import proves
from queue_operator.worker import Depends, InvalidHandler, JobContext, PermanentError, Worker
from queue_operator.worker.testing import run_handler, run_handler_async

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log() -> Iterator[None]:
    LOG.clear()
    yield
    LOG.clear()


@dataclass
class Database:
    name: str
    used: int = 0


def connect() -> Iterator[Database]:
    LOG.append("connect")
    yield Database("main")
    LOG.append("disconnect")


Db = Annotated[Database, Depends(connect, scope="worker")]


async def session(db: Db, ctx: JobContext) -> AsyncIterator[str]:
    LOG.append("begin")
    try:
        yield f"{db.name}/{ctx.job_id}"
    except Exception as error:
        LOG.append(f"rollback {type(error).__name__}")
        raise
    LOG.append("commit")


Session = Annotated[str, Depends(session)]


def cursor(db: Db) -> Iterator[str]:
    LOG.append("open cursor")
    yield f"cursor of {db.name}"
    LOG.append("close cursor")


Cursor = Annotated[str, Depends(cursor)]


async def in_loop(ctx: JobContext, payload: int, db: Db, session: Session) -> list[Any]:
    LOG.append("handle")
    return [payload, db.name, session]


def in_thread(ctx: JobContext, payload: int, db: Db, session: Session) -> list[Any]:
    LOG.append("handle")
    return [payload, db.name, session]


def made(*handlers: Callable[..., Any]) -> Worker:
    worker = Worker()
    for handler in handlers:
        worker.handler(handler.__name__)(handler)
    return worker


@pytest.mark.parametrize("handler", [in_loop, in_thread])
@proves("external-api.HandlerRegistration.expect.7")
def test_they_are_made_for_the_handler_and_closed_in_reverse(handler: Callable[..., Any]) -> None:
    result = run_handler(made(handler), handler.__name__, 7, job_id="j")
    assert result == [7, "main", "main/j"]
    assert LOG == ["connect", "begin", "handle", "commit", "disconnect"]


def test_a_handler_may_take_them_without_a_payload() -> None:
    def only(ctx: JobContext, cursor: Cursor, second: Cursor) -> str:
        assert threading.current_thread() is threading.main_thread()
        assert cursor is second
        return cursor

    assert run_handler(made(only), "only") == "cursor of main"
    assert LOG == ["connect", "open cursor", "close cursor", "disconnect"]


def failing(ctx: JobContext, session: Session) -> None:
    raise ValueError("no")


async def unstorable(ctx: JobContext, session: Session) -> object:
    return object()


async def invalid(ctx: JobContext, payload: int, session: Session) -> None: ...


@proves("external-api.HandlerRegistration.expect.7")
def test_they_see_the_error_of_the_handler_its_payload_and_its_result() -> None:
    worker = made(failing, unstorable, invalid)
    with pytest.raises(ValueError, match="no"):
        run_handler(worker, "failing")
    with pytest.raises(PermanentError):
        run_handler(worker, "unstorable")
    with pytest.raises(PermanentError):
        run_handler(worker, "invalid", "x")
    rollbacks = [line for line in LOG if line.startswith("rollback")]
    assert rollbacks == [
        "rollback ValueError",
        "rollback PermanentError",
        "rollback PermanentError",
    ]
    assert "commit" not in LOG


def swallows() -> Iterator[None]:
    with suppress(ValueError):
        yield


def closes_badly() -> Iterator[None]:
    yield
    raise ConnectionError("cannot commit")


@pytest.mark.parametrize("coroutine", [False, True])
def test_an_error_in_closing_fails_the_job_and_a_swallowed_one_still_does(coroutine: bool) -> None:
    def bad(ctx: JobContext, it: Annotated[None, Depends(swallows)]) -> None:
        raise ValueError("still")

    def late(ctx: JobContext, it: Annotated[None, Depends(closes_badly)]) -> str:
        return "done"

    async def bad_async(ctx: JobContext, it: Annotated[None, Depends(swallows)]) -> None:
        raise ValueError("still")

    async def late_async(ctx: JobContext, it: Annotated[None, Depends(closes_badly)]) -> str:
        return "done"

    suffix = "_async" if coroutine else ""
    worker = made(bad, late, bad_async, late_async)
    with pytest.raises(ValueError, match="still"):
        run_handler(worker, f"bad{suffix}")
    with pytest.raises(ConnectionError, match="cannot commit"):
        run_handler(worker, f"late{suffix}")


async def test_overrides_stand_in_for_them() -> None:
    def fake_connect() -> Database:
        return Database("fake")

    worker = made(in_loop, in_thread)
    worker.overrides[connect] = fake_connect
    worker.overrides[session] = lambda: "no session"
    for kind in ("in_loop", "in_thread"):
        assert await run_handler_async(worker, kind, 1) == [1, "fake", "no session"]
    assert LOG == ["handle", "handle"]


def loop_a(b: "Annotated[int, Depends(loop_b)]") -> int:
    return b


def loop_b(a: Annotated[int, Depends(loop_a)]) -> int:
    return a


def needs_argument(url: str) -> str:
    return url


def too_long(cursor: Cursor) -> str:
    return cursor


def knows_job(ctx: JobContext) -> str:
    return ctx.job_id


@pytest.mark.parametrize(
    ("depends", "fault"),
    [
        (Depends(loop_a), "loop_a needs itself"),
        (Depends(needs_argument), "takes 'url', which is neither a dependency nor ctx"),
        (Depends(too_long, scope="worker"), "cannot need what a job has"),
        (Depends(knows_job, scope="worker"), "cannot need what a job has"),
    ],
)
def test_what_cannot_be_made_is_refused_at_registration(depends: Depends, fault: str) -> None:
    def handler(ctx: JobContext, it: Any) -> None: ...

    handler.__annotations__["it"] = Annotated[Any, depends]
    with pytest.raises(InvalidHandler, match=fault):
        made(handler)


def test_a_mark_must_make_sense() -> None:
    with pytest.raises(InvalidHandler, match="needs a function"):
        Depends(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidHandler, match='"job" or "worker"'):
        Depends(connect, scope="request")  # type: ignore[arg-type]


@proves("external-api.HandlerRegistration.expect.7", "external-api.HandlerRegistration.expect.8")
def test_a_worker_makes_its_own_once_before_its_first_job(
    worker_with: Callable[..., Any], server: Any, run: Any, say: Any
) -> None:
    @asynccontextmanager
    async def lifespan(worker: Worker) -> AsyncIterator[dict[str, str]]:
        LOG.append(f"enter on {threading.current_thread().name}")
        yield {"shared": "state"}
        LOG.append("leave")

    def counts(ctx: JobContext, db: Db) -> list[Any]:
        db.used += 1
        return [db.used, ctx.state["shared"]]

    async def counts_too(ctx: JobContext, db: Db) -> list[Any]:
        db.used += 1
        return [db.used, ctx.state["shared"]]

    worker = worker_with(lifespan=lifespan, counts=counts, counts_too=counts_too)
    ended = run(worker)
    connection = server.accept()
    assert LOG == ["enter on async-handlers", "connect"]
    results = []
    for number in range(4):
        kind = "counts" if number % 2 else "counts_too"
        connection.send(say.assigned(say.assignment(str(number), "t", kind)))
        results.append(connection.settle(1)[0].result)
    assert results == [f'[{n},"state"]'.encode() for n in (1, 2, 3, 4)]
    worker.stop()
    connection.ended()
    assert ended.result(20.0) == 0
    assert LOG == ["enter on async-handlers", "connect", "disconnect", "leave"]


def fails(worker: Worker) -> Iterator[None]:
    raise RuntimeError("no database")
    yield


def unreachable() -> None:
    raise RuntimeError("no database")


def unreachable_user(
    ctx: JobContext, it: Annotated[None, Depends(unreachable, "worker")]
) -> None: ...


@proves("external-api.HandlerRegistration.expect.8")
@pytest.mark.parametrize("parts", [{"lifespan": fails}, {"user": unreachable_user}])
def test_one_that_fails_ends_the_worker_before_it_connects(
    worker_with: Callable[..., Any], server: Any, run: Any, parts: dict[str, Any]
) -> None:
    ended = run(worker_with(**parts))
    with pytest.raises(RuntimeError, match="no database"):
        ended.result(20.0)
    assert server.connections.empty()


def test_a_worker_can_be_stopped_while_its_lifespan_begins(
    worker_with: Callable[..., Any], run: Any
) -> None:
    entered = threading.Event()

    async def forever(worker: Worker) -> AsyncIterator[None]:
        entered.set()
        await asyncio.get_running_loop().create_future()
        yield

    worker = worker_with(lifespan=forever)
    ended = run(worker)
    assert entered.wait(20.0)
    worker.stop()
    assert ended.result(20.0) == 0


@pytest.mark.parametrize("wrap", [contextmanager, lambda generator: generator])
def test_a_plain_generator_will_do(
    worker_with: Callable[..., Any], server: Any, run: Any, say: Any, wrap: Callable[..., Any]
) -> None:
    @wrap
    def lifespan(worker: Worker) -> Iterator[str]:
        yield "state"
        LOG.append("left")

    worker = worker_with(lifespan=lifespan, state=lambda ctx: ctx.state)
    ended = run(worker)
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t", "state")))
    assert connection.settle(1)[0].result == b'"state"'
    worker.stop()
    assert ended.result(20.0) == 0
    assert LOG == ["left"]


@pytest.mark.parametrize(
    ("lifespan", "told"),
    [
        (5, "must be a function of the worker, not an int"),
        (lambda: None, "must take the worker and nothing else"),
        (asyncio.sleep, "sleep must yield once"),
    ],
)
def test_a_lifespan_that_cannot_be_one_is_refused_at_once(lifespan: Any, told: str) -> None:
    with pytest.raises(InvalidHandler, match=told):
        Worker(lifespan=lifespan)


def test_a_lifespan_must_be_something_to_enter(worker_with: Callable[..., Any]) -> None:
    with pytest.raises(InvalidHandler, match="must yield or give a context manager, not an int"):
        worker_with(lifespan=lambda worker: 7).run()


def test_closing_is_bounded(worker_with: Callable[..., Any], server: Any, run: Any) -> None:
    cut = threading.Event()

    async def never_leaves(worker: Worker) -> AsyncIterator[None]:
        yield
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cut.set()

    worker = worker_with(lifespan=never_leaves, close_s=0.01)
    ended = run(worker)
    server.accept()
    worker.stop()
    assert ended.result(20.0) == 0
    assert cut.is_set()


async def late_need(db: Db) -> str:
    return f"late {db.name}"


@proves("external-api.HandlerRegistration.expect.10")
def test_a_type_registered_while_connected_is_announced_at_once(
    worker_with: Callable[..., Any], server: Any, run: Any, say: Any
) -> None:
    worker = worker_with(first=lambda ctx: None)
    run(worker)
    connection = server.accept()
    assert [t.type for t in connection.hello.types] == ["first"]

    @worker.handler("late", concurrency=3, timeout="PT2S")  # type: ignore[untyped-decorator]
    async def late(ctx: JobContext, need: Annotated[str, Depends(late_need)]) -> str:
        return need

    update = connection.next("types")
    assert [t.type for t in update.types] == ["first", "late"]
    assert (update.types[1].concurrency, update.types[1].timeout.seconds) == (3, 2)
    connection.send(say.assigned(say.assignment("a", "t", "late")))
    assert connection.settle(1)[0].result == b'"late main"'
