"""Backends by URL."""

import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.protocol import Backend
from queue_operator.backends.registry import open_backend
from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.reach import Reach
from queue_operator.domain.validation import Limits

WITHOUT_PSYCOPG = """
import asyncio, sys
sys.modules["psycopg"] = None
from queue_operator.backends.registry import open_backend
from queue_operator.domain.errors import InvalidArgument

async def main():
    await (await open_backend("memory://")).close()
    try:
        await open_backend("postgresql://localhost/jobs")
    except InvalidArgument as error:
        print(error)

asyncio.run(main())
"""


async def _works(backend: Backend) -> None:
    await backend.ping()
    assert await backend.enqueue_job(Job(id="a", type="t")) == "a"
    assert [job.id for job in await backend.dequeue_jobs("w", [], 1)] == ["a"]
    await backend.close()


async def test_memory() -> None:
    backend = await open_backend("memory://")
    assert isinstance(backend, MemoryBackend)
    await _works(backend)


async def test_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "with a space & 100 %" / "jobs.db"
    path.parent.mkdir()
    backend = await open_backend(f"sqlite://{quote(str(path))}")
    assert isinstance(backend, SqliteBackend)
    await _works(backend)
    again = await open_backend(f"sqlite://{quote(str(path))}")
    assert (await again.get_job("a")).assignee_id == "w"
    await again.close()


async def test_sqlite_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend = await open_backend("sqlite:jobs.db")
    # The file stays the same one, wherever the process goes.
    monkeypatch.chdir("/")
    await _works(backend)
    assert _names(tmp_path) == ["jobs.db"]


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_postgres(new_database: Callable[[], str], postgres_admin_dsn: str) -> None:
    dsn = new_database()
    with pytest.raises(Unavailable, match="schema"):
        await open_backend(_url(dsn))
    await migrate(dsn)
    backend = await open_backend(_url(dsn))
    assert isinstance(backend, PostgresBackend)
    await _works(backend)


def _url(dsn: str) -> str:
    words = dict(word.split("=", 1) for word in dsn.split())
    user, password = quote(words["user"]), quote(words.get("password", ""))
    return f"postgresql://{user}:{password}@{words['host']}:{words['port']}/{words['dbname']}"


async def test_limits_are_those_given() -> None:
    backend = await open_backend("memory://", limits=Limits(payload_bytes=3))
    with pytest.raises(PayloadTooLarge):
        await backend.enqueue_job(Job(id="a", type="t", payload=b"1234"))
    await backend.close()


async def test_a_callback_is_refused_where_no_server_can_ever_call_it(tmp_path: Path) -> None:
    job = Job(id="a", type="t", callback_url="https://receiver.example/")
    ours = Limits(callbacks=Reach.of([]))
    for url in ("memory://", f"sqlite://{tmp_path}/jobs.db"):
        backend = await open_backend(url)
        with pytest.raises(
            InvalidArgument, match="must be left out: no server works on such"
        ) as no:
            await backend.enqueue_job(job)
        assert no.value.field == "callback_url"
        await backend.close()
        # Whoever sends them says where they may go.
        backend = await open_backend(url, limits=ours)
        await backend.enqueue_job(job)
        with pytest.raises(InvalidArgument, match="must not go inside"):
            await backend.enqueue_job(replace(job, id="b", callback_url="https://10.0.0.1/"))
        await backend.close()


async def test_a_callback_is_taken_where_a_server_may_call_it(
    new_database: Callable[[], str],
) -> None:
    dsn = new_database()
    await migrate(dsn)
    backend = await open_backend(_url(dsn))
    await backend.enqueue_job(Job(id="a", type="t", callback_url="https://receiver.example/"))
    await backend.close()


@pytest.mark.parametrize("url", ["", "jobs.db", "/var/jobs.db", "redis://host", "mysql://u:p@h/d"])
async def test_an_unknown_scheme_is_answered_with_the_known_ones(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await open_backend(url)
    assert refused.value.field == "url"
    assert all(word in refused.value.reason for word in ("memory://", "sqlite:///", "postgresql:/"))
    assert "u:p" not in refused.value.reason


@pytest.mark.parametrize(
    "url",
    ["sqlite:", "sqlite://", "sqlite:///", "sqlite://host/jobs.db", "sqlite:///a?mode=ro"],
)
async def test_a_url_that_names_no_file(url: str) -> None:
    with pytest.raises(InvalidArgument, match="url: must be like sqlite:///"):
        await open_backend(url)


async def test_memory_has_no_name() -> None:
    with pytest.raises(InvalidArgument, match="memory://"):
        await open_backend("memory://shared")


def test_what_is_missing_is_named_with_the_way_to_install_it() -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_PSYCOPG], capture_output=True, text=True, check=True
    ).stdout
    assert "needs psycopg" in said
    assert "pip install 'queue-operator[server]'" in said


SECRET = "s3cr#t"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@x@127.0.0.1:1/q",
        f"postgresql://u:{SECRET}/x@127.0.0.1:1/q",
        f"postgresql://u:{SECRET}%zz@127.0.0.1:1/q",
        f"postgresql://u:{SECRET}@127.0.0.1:1/q?nonsense=1",
        f"POSTGRESQL://u:{SECRET}@127.0.0.1:1/q",
        f"mysql://u:{SECRET}@127.0.0.1:1/q",
        f"host=127.0.0.1 port=1 user=u password={SECRET} x dbname=q",
        f"host=127.0.0.1 port=1 user=u password={SECRET} x={SECRET} dbname=q",
        f"u:{SECRET}@127.0.0.1",
        SECRET,
    ],
)
async def test_a_password_is_never_told(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    for attempt in (open_backend, PostgresBackend.open, migrate):
        with pytest.raises(InvalidArgument) as refused:
            await attempt(url)
        assert refused.value.field in ("url", "dsn")
        shown = "".join(traceback.format_exception_only(refused.value)) + repr(refused.value)
        chained = repr(refused.value.__cause__ or "")
        assert "s3cr" not in shown + chained
    assert "s3cr" not in "".join(capfd.readouterr())


async def test_pairs_of_key_and_value_are_an_address() -> None:
    with pytest.raises(Unavailable, match="refused") as raised:
        await open_backend(f"host=127.0.0.1 port=1 user=u password={SECRET} dbname=q")
    assert "s3cr" not in str(raised.value)


async def test_an_unknown_option_of_the_address_is_named() -> None:
    with pytest.raises(InvalidArgument, match="url: has an unknown option nonsense"):
        await open_backend("postgresql://u:p@127.0.0.1:1/q?nonsense=1")


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite::memory:"])
async def test_a_sqlite_file_in_memory_is_no_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="for a store in memory give memory://"):
        await open_backend(url)
    assert _names(tmp_path) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", None),
        ("limits", 5),
        ("cancel_timeout_s", "x"),
        ("pool_size", 0),
        ("pool_size", "8"),
        ("connect_timeout_s", timedelta(seconds=1)),
        ("statement_timeout_s", "x"),
        ("statement_timeout_s", -1),
        ("pooler", "no"),
        ("listen_dsn", "nonsense"),
        ("listen_dsn", "host=db nonsense=1"),
    ],
)
async def test_an_argument_that_is_wrong_is_named(field: str, value: object) -> None:
    arguments: dict[str, Any] = {"url": "postgresql://127.0.0.1:1/q", field: value}
    with pytest.raises(InvalidArgument) as refused:
        await open_backend(**arguments)
    assert refused.value.field == field
    if field in ("limits", "cancel_timeout_s"):
        for url in ("memory://", "sqlite:///nowhere/at/all.db"):
            with pytest.raises(InvalidArgument) as refused:
                await open_backend(**(arguments | {"url": url}))
            assert refused.value.field == field


async def test_options_of_postgres_are_for_it_alone(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    dsn = new_database()
    await migrate(dsn)
    backend = await open_backend(
        dsn, pool_size=2, connect_timeout_s=3, statement_timeout_s=2, pooler=True, listen_dsn=dsn
    )
    await _works(backend)
    for url in ("memory://", f"sqlite://{tmp_path}/jobs.db"):
        with pytest.raises(InvalidArgument, match="pooler: is an option of PostgreSQL alone"):
            await open_backend(url, pooler=True)
