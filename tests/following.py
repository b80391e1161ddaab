"""Reads streams of events as a caller does."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from tests.waiting import DEADLINE_S


@dataclass(frozen=True)
class Told:
    """One event of a stream; a heartbeat has no name."""

    name: str
    id: str
    data: dict[str, Any]


async def told(answer: httpx.Response) -> AsyncIterator[Told]:
    """The events of a stream, as they come."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            data = json.loads(fields.get("data", "{}"))
            yield Told(fields.get("event", ""), fields.get("id", ""), data)
            fields = {}


@asynccontextmanager
async def following(
    http: httpx.AsyncClient, path: str, after: str = "", **params: Any
) -> AsyncIterator[AsyncIterator[Told]]:
    """The events of a stream that is open meanwhile."""
    headers = {"Last-Event-ID": after} if after else {}
    async with http.stream(
        "GET", path, headers=headers, params=params, timeout=DEADLINE_S
    ) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        yield told(answer)


async def until(events: AsyncIterator[Told], name: str, **data: Any) -> list[Told]:
    """All up to the first that is so, without heartbeats."""
    found = list[Told]()
    async for one in events:
        if one.name:
            found.append(one)
        if one.name == name and data.items() <= one.data.items():
            return found
    raise AssertionError(f"the stream ended without {name} {data}: {found}")
