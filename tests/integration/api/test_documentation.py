"""The document and its page, from this server alone."""

import re

from tests.integration.api.door import Door, check_error

from queue_operator.testing.clauses import proves


@proves("external-api.Robustness.expect.3")
async def test_the_page_needs_no_other_server(door: Door) -> None:
    page = await door.call_as(None, "GET", "/v1/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert not re.search(r"https?://|//[a-z]", page.text)
    assets = re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text)
    assert len(assets) == 4
    for name in assets:
        asset = await door.call_as(None, "GET", f"/v1/{name}")
        assert asset.status_code == 200, name
        assert asset.headers["x-content-type-options"] == "nosniff"
    script = (await door.call_as(None, "GET", "/v1/docs/start.js")).text
    assert 'url: "openapi.json"' in script
    assert "validatorUrl: null" in script
    bundle = (await door.call_as(None, "GET", "/v1/docs/swagger-ui-bundle.js")).text
    assert "SwaggerUIBundle" in bundle


async def test_the_document_is_for_everybody(door: Door) -> None:
    answer = await door.call_as(None, "GET", "/v1/openapi.json")
    assert answer.json()["openapi"].startswith("3.1")


async def test_other_files_are_not_served(door: Door) -> None:
    for name in ("../app.py", "..%2fapp.py", "redoc.standalone.js", "", "start.js/x"):
        check_error(await door.call("GET", f"/v1/docs/{name}"), 404, "NOT_FOUND")
