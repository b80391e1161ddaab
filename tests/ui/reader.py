"""Somebody who reads the page, and what the browser complained of meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

PATIENCE_MS = 60_000
_EXPECTED = ("401 (Unauthorized)", "403 (Forbidden)", "404 (Not Found)")
"""What Chromium notes of answers that the page is prepared for."""

expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Reader:
    """`asked` are the addresses that the page asked for."""

    page: Page
    context: BrowserContext
    url: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, view: str = "overview", **params: str) -> Page:
        """A view, at its address."""
        query = "&".join(f"{name}={value}" for name, value in params.items())
        self.page.goto(f"{self.url}/ui#/{view}?{query}")
        self.page.reload()
        return self.page

    def sign_in(self, token: str) -> None:
        """By the form, as somebody does who has a token."""
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()

    def part(self, name: str) -> Any:
        return self.page.get_by_role("region", name=name, exact=True)


@contextmanager
def reading(browser: Browser, url: str, token: str | None, **context: Any) -> Iterator[Reader]:
    """A tab of its own, signed in with `token`; fails where the browser complained."""
    given = {"locale": "en-US", "timezone_id": "UTC", **context}
    opened = browser.new_context(**given)
    page = opened.new_page()
    page.set_default_timeout(PATIENCE_MS)
    reader = Reader(page, opened, url)

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.endswith(_EXPECTED):
            reader.complaints.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: reader.complaints.append(str(error)))
    page.on("request", lambda request: reader.asked.append(request.url))
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation',"
        " (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))"
    )
    if token is not None:
        page.goto(f"{url}/ui")
        page.get_by_label("Token").wait_for()
        page.evaluate("(token) => sessionStorage.setItem('queue-operator-token', token)", token)
    yield reader
    opened.close()
    assert reader.complaints == []
