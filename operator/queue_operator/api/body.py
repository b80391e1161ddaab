"""Reads request bodies: bounded while they stream in, JSON only."""

import asyncio
from typing import Final

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from queue_operator.domain.errors import PayloadTooLarge

READ_TIMEOUT_S: Final = 60.0
"""How long one body may take to arrive."""
_DRAIN_TIMEOUT_S: Final = 5.0


async def read_json(request: Request, limit: int, *, required: bool = True) -> bytes:
    """The body, at most `limit` bytes of JSON; empty only if not `required`.

    Raises PayloadTooLarge, or HTTPException 400, 408 or 415.
    """
    _check_encoding(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        await _drain(request, limit)
        raise PayloadTooLarge("body", int(declared), limit)
    body = await _read(request, limit)
    if body or required:
        _check_type(request)
    if required and not body:
        raise HTTPException(400, "the request has no body; send a JSON object")
    return body


def _check_encoding(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise HTTPException(415, f"content encoding {encoding!r} is not accepted; send it plain")


def _check_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise HTTPException(415, "send the body as 'Content-Type: application/json'")


async def _read(request: Request, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    break
                chunks.append(chunk)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {READ_TIMEOUT_S:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "the caller left before the body was complete") from None
    if size > limit:
        await _drain(request, limit)
        raise PayloadTooLarge("body", size, limit)
    return b"".join(chunks)


async def _drain(request: Request, limit: int) -> None:
    """Takes in what is under way, for a while: a caller that still writes would otherwise
    see a broken connection instead of the answer.
    """
    if "expect" in request.headers:
        return  # The caller waits for our word before it sends anything.
    size = 0
    try:
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    return
    except (TimeoutError, ClientDisconnect, RuntimeError):
        return
