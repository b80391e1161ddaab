"""The page's files, whatever address they are asked for under."""

import httpx
import pytest
from fastapi import FastAPI

from queue_operator.api import page


async def got(path: str, root_path: str = "", **headers: str) -> httpx.Response:
    app = FastAPI(redirect_slashes=False)
    page.install(app)
    transport = httpx.ASGITransport(app, root_path=root_path)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
        return await http.get(path, headers=headers)


@pytest.mark.parametrize("root_path", ["", "/queue"])
async def test_the_files_are_served_wherever_the_application_is(root_path: str) -> None:
    assert (await got(f"{root_path}/ui", root_path)).text.startswith("<!DOCTYPE html>")
    script = await got(f"{root_path}/ui/main.js", root_path)
    assert script.content == page.content("main.js")[0]


async def test_a_host_is_no_path() -> None:
    answer = await got("/ui/main.js", host="a/ui/../page.py?")
    assert answer.content == page.content("main.js")[0]


async def test_a_slash_behind_it_leads_to_the_page() -> None:
    answer = await got("/ui/")
    assert (answer.status_code, answer.headers["location"]) == (307, "../ui")


@pytest.mark.parametrize("path", ["/ui/page.py", "/ui/index.html", "/ui//main.js", "/ui/%2e%2e/x"])
async def test_nothing_else_is_served(path: str) -> None:
    assert (await got(path)).status_code == 404
