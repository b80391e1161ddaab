"""The document as a page to read and to try out, from files that are installed with the server."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

PAGE_PATH: Final = "/v1/docs"
_ASSETS: Final = files("fastapi_offline") / "static"
_SCRIPT: Final = "swagger-ui-bundle.js"
_STYLE: Final = "swagger-ui.css"
_KINDS: Final[Mapping[str, str]] = {
    _SCRIPT: "text/javascript",
    _STYLE: "text/css",
    "favicon.png": "image/png",
    "start.js": "text/javascript",
}
_PAGE: Final = f"""\
<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>Queue Operator</title>
  <link rel="stylesheet" href="docs/{_STYLE}">
  <link rel="icon" href="docs/favicon.png">
</head>
<body>
  <div id="document"></div>
  <script src="docs/{_SCRIPT}"></script>
  <script src="docs/start.js"></script>
</body>
</html>
"""
# Without a validator: that would be a call to a server elsewhere.
_START: Final = """\
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#document",
  deepLinking: true,
  persistAuthorization: true,
  validatorUrl: null,
});
"""
_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = {"X-Content-Type-Options": "nosniff"}
_KEPT: Final = {**_HEADERS, "Cache-Control": "public, max-age=3600"}


def install(app: FastAPI) -> None:
    """Serves the page and its files to everybody, as the document itself."""
    app.router.routes.append(Route(PAGE_PATH, _page, methods=["GET"]))
    for name in _KINDS:
        app.router.routes.append(Route(f"{PAGE_PATH}/{name}", _asset, methods=["GET"]))


async def _page(request: Request) -> Response:
    headers = {**_HEADERS, "Content-Security-Policy": _POLICY}
    return Response(_PAGE, headers=headers, media_type="text/html")


async def _asset(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    return Response(_content(name), headers=_KEPT, media_type=_KINDS[name])


@cache
def _content(name: str) -> bytes:
    return _START.encode() if name == "start.js" else (_ASSETS / name).read_bytes()
