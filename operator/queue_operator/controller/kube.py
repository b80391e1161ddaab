"""A small asynchronous client of the API server: what kopf and the official client lack.

The official client is synchronous and kopf's is private; both are wrappers of few lines
around HTTP, as is this one, on the aiohttp that kopf brings along.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Self

import aiohttp

from queue_operator.controller.credentials import Credentials
from queue_operator.crd.names import API_VERSION, FIELD_MANAGER
from queue_operator.domain.errors import Unavailable

API: Final = f"/apis/{API_VERSION}"
JSON_PATCH: Final = "application/json-patch+json"
METADATA_ONLY: Final = "application/json;as={};g=meta.k8s.io;v=v1"
PAGE: Final = 500
WATCH_S: Final = 300
"""How long the API server leaves a watch open."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=60, connect=10)
# It sends a bookmark about each minute.
_WATCHING: Final = aiohttp.ClientTimeout(total=None, connect=10, sock_read=90)
_WRITE: Final = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}


@dataclass(eq=False)
class ApiError(Exception):
    """The API server said no. `causes` are the messages of its details; `retry_after_s` is
    what a 429 or 503 asked for.
    """

    status: int
    message: str
    causes: tuple[str, ...] = ()
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return f"the API server answered {self.status}: {self.message}"

    @property
    def retryable(self) -> bool:
        return self.status == HTTPStatus.TOO_MANY_REQUESTS or self.status >= 500


class KubeClient:
    """Use as a context manager, in one event loop; `traces` see its requests. Raises ApiError for
    a refusal, and Unavailable when the API server cannot be reached.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        connections: int = 64,
        traces: Sequence[aiohttp.TraceConfig] = (),
    ) -> None:
        self._credentials = credentials
        self._traces = list(traces)
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            ssl=self._credentials.ssl_context(), limit=self._connections
        )
        self._session = aiohttp.ClientSession(
            base_url=self._credentials.server,
            connector=connector,
            timeout=_TIMEOUT,
            trace_configs=self._traces,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(
        self, path: str, *, params: Mapping[str, str] | None = None, accept: str | None = None
    ) -> Any:
        return await self.request("GET", path, params=params, accept=accept)

    async def create(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self.request("POST", path, params=_WRITE, body=body)

    async def replace(self, path: str, body: Mapping[str, Any]) -> Any:
        """Refused with 409 unless the body has the newest resourceVersion."""
        return await self.request("PUT", path, params=_WRITE, body=body)

    async def replace_status(self, path: str, uid: str, status: Mapping[str, Any]) -> Any:
        """Writes the whole status, if the object still has this uid.

        A JSON patch, because its `test` is the one way to name the uid: the API server
        silently drops a uid from merge and apply patches of a status.
        """
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        return await self.request(
            "PATCH", f"{path}/status", params=_WRITE, body=patch, content_type=JSON_PATCH
        )

    async def delete(self, path: str, uid: str, version: str | None = None) -> bool:
        """Deletes the object with this uid if it is still as it was in `version`, in whatever by
        default. False if it is not, or another has its name.
        """
        wanted = {"uid": uid} if version is None else {"uid": uid, "resourceVersion": version}
        try:
            await self.request("DELETE", path, body={"preconditions": wanted})
        except ApiError as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
            return error.status == HTTPStatus.NOT_FOUND
        return True

    async def pages(
        self,
        path: str,
        *,
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int = PAGE,
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """The objects of a collection in pages of `limit`. Raises ApiError 410 when the list took
        too long to stay consistent.
        """
        async for page in self.lists(
            path, field_selector=field_selector, metadata_only=metadata_only, limit=limit
        ):
            # The API server says null where a list is empty.
            yield page["items"] or []

    async def lists(
        self,
        path: str,
        *,
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int = PAGE,
    ) -> AsyncIterator[dict[str, Any]]:
        """The same with what the API server says of each page, as the version to watch from."""
        accept = METADATA_ONLY.format("PartialObjectMetadataList") if metadata_only else None
        params = {"limit": str(limit)}
        if field_selector:
            params["fieldSelector"] = field_selector
        while True:
            page = await self.get(path, params=params, accept=accept)
            yield page
            token = page["metadata"].get("continue")
            if not token:
                return
            params["continue"] = token

    async def watch(
        self, path: str, version: str, *, field_selector: str = ""
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What happens in a collection after a version: types of events, and metadata of objects.
        Ends when the API server ends it. Raises ApiError for an error that it puts between.
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        if field_selector:
            params["fieldSelector"] = field_selector
        accept = METADATA_ONLY.format("PartialObjectMetadata")
        async with self._answer(
            "GET", path, params=params, accept=accept, timeout=_WATCHING
        ) as response:
            async for line in _lines(response):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(int(status.get("code") or 500), str(status.get("message")))
                yield event["type"], event["object"]["metadata"]

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str | None = None,
    ) -> Any:
        async with self._answer(
            method, path, params=params, body=body, content_type=content_type, accept=accept
        ) as response:
            return await response.json()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str | None = None,
        timeout: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise Unavailable("the client of the API server is closed")
        headers = {"Accept": accept or "application/json"}
        if authorization := self._credentials.authorization():
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            async with self._session.request(
                method,
                path,
                params=params,
                headers=headers,
                data=None if body is None else json.dumps(body),
                timeout=timeout,
            ) as response:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise await _refusal(response)
                yield response
        except (aiohttp.ClientError, OSError, json.JSONDecodeError) as error:
            # Something between may cut an answer off and leave it whole as far as HTTP goes.
            where = self._credentials.server
            why = str(error) or type(error).__name__
            raise Unavailable(f"the API server at {where} cannot be reached: {why}") from error


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Of any length: aiohttp's own have a limit, and annotations have none below it."""
    rest = b""
    async for data in response.content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    text = await response.text()
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    details = status.get("details") or {}
    return ApiError(
        status=response.status,
        message=str(status.get("message") or text[:200]),
        causes=tuple(str(cause.get("message")) for cause in details.get("causes") or ()),
        retry_after_s=_retry_after_s(response.headers.get("Retry-After"), details),
    )


def _retry_after_s(header: str | None, details: Mapping[str, Any]) -> float | None:
    if header is not None and header.isdecimal():
        return float(header)
    seconds = details.get("retryAfterSeconds")
    return float(seconds) if seconds else None


def object_path(plural: str, namespace: str, name: str) -> str:
    return f"{collection_path(plural, namespace)}/{name}"


def collection_path(plural: str, namespace: str | None = None) -> str:
    """The path of all objects of a kind, in one namespace or in all."""
    return f"{API}/namespaces/{namespace}/{plural}" if namespace else f"{API}/{plural}"
