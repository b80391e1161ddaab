"""The page for people, from files that are installed with the server. Whatever it shows it asks the
REST API for, with the reader's own token.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from starlette.routing import Route

PAGE_PATH: Final = "/ui"
_FILES: Final = files(__package__) / "ui"
_PAGE: Final = "index.html"
_KINDS: Final[Mapping[str, str]] = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No script or style but these files, no address but this server's, no text that becomes HTML."""
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A page of an older release would ask a newer server what it no longer knows.
    "Cache-Control": "no-cache",
}


def install(app: FastAPI) -> None:
    """Serves the page and its files to everybody: they hold nothing of the queue."""
    for name in names():
        path = PAGE_PATH if name == _PAGE else f"{PAGE_PATH}/{name}"
        app.router.routes.append(Route(path, _serving(name), methods=["GET"]))
    app.router.routes.append(Route(f"{PAGE_PATH}/", _without_slash, methods=["GET"]))


@cache
def names() -> tuple[str, ...]:
    """The files of the page."""
    found = (entry.name for entry in _FILES.iterdir())
    return tuple(sorted(name for name in found if _suffix(name) in _KINDS))


def _serving(name: str) -> Callable[[Request], Awaitable[Response]]:
    """What serves one file. Which one the route says: an address is made of what callers send, the
    header Host among it.
    """

    async def serve(request: Request) -> Response:
        body, tag = content(name)
        headers = {**_HEADERS, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=_KINDS[_suffix(name)])

    return serve


async def _without_slash(_: Request) -> Response:
    """Behind the slash the files of the page would be looked for elsewhere."""
    return RedirectResponse(f"..{PAGE_PATH}", headers=_HEADERS)


@cache
def content(name: str) -> tuple[bytes, str]:
    """A file, and a word that changes with it."""
    body = (_FILES / name).read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _suffix(name: str) -> str:
    return f".{name.rpartition('.')[2]}"
