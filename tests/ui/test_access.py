"""The page without a mouse, and for those who hear it."""

import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect
from tests.ui.reader import Reader, reading
from tests.ui.scene import TOKEN, Scene

VIEWS: dict[str, Callable[[Reader, str], None]] = {}


def view(function: Callable[[Reader, str], None]) -> Callable[[Reader, str], None]:
    VIEWS[function.__name__] = function
    return function


@view
def overview(reader: Reader, shop: str) -> None:
    reader.open(ns=shop)
    for name in ("Verdict", "Types that fail", "Pauses", "Throughput and latency"):
        expect(reader.part(name)).to_contain_text(re.compile(r"\w{3}"))
    reader.part("Verdict").get_by_text("no connected worker").last.click()
    reader.page.get_by_text("Jobs per minute as a table").click()


@view
def jobs(reader: Reader, shop: str) -> None:
    reader.open("jobs", ns=shop, state="FAILED")
    expect(reader.part("Jobs found").get_by_role("row").nth(2)).to_be_visible()


@view
def failed_job(reader: Reader, shop: str) -> None:
    reader.open("job/mail-030", ns=shop)
    expect(reader.part("Attempts").get_by_role("row").nth(1)).to_be_visible()


@view
def running_job(reader: Reader, shop: str) -> None:
    reader.open("job/mail-042", ns=shop)
    expect(reader.part("Log")).to_contain_text("connecting")


@view
def workers(reader: Reader, shop: str) -> None:
    reader.open("workers", ns=shop)
    expect(reader.part("Workers").get_by_role("row").nth(2)).to_be_visible()


@view
def webhooks(reader: Reader, shop: str) -> None:
    reader.open("webhooks", ns=shop)
    expect(reader.part("Messages found").get_by_role("row")).to_have_count(6)


@view
def question(reader: Reader, shop: str) -> None:
    page = reader.open("jobs", ns=shop, type="resize-image")
    page.get_by_role("button", name="Cancel all that match…").click()
    expect(page.get_by_role("dialog")).to_contain_text("7 jobs would be cancelled.")


@view
def sign_in(reader: Reader, shop: str) -> None:
    page = reader.open(ns=shop)
    page.get_by_role("button", name="Sign out").click()
    reader.sign_in("wrong")
    expect(page.get_by_role("alert")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [one.__name__ for one in VIEWS.values()])
def test_axe_finds_nothing(
    chromium: Browser, scene: Scene, shop: str, name: str, scheme: str
) -> None:
    with reading(chromium, scene.url, TOKEN, color_scheme=scheme) as reader:
        VIEWS[name](reader, shop)
        background = reader.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(18, 22, 27)") == (scheme == "dark")
        found = Axe().run(reader.page)
        assert found.violations_count == 0, found.generate_report()


def test_all_is_done_by_keys(chromium: Browser, scene: Scene, shop: str) -> None:
    with reading(chromium, scene.url, None) as reader:
        page, keys = reader.open(ns=shop), reader.page.keyboard
        expect(page.get_by_label("Token")).to_be_focused()
        keys.type(TOKEN)
        keys.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        walk_to(reader, "link", "Skip to content", back=True)
        keys.press("Enter")
        expect(page.locator("main")).to_be_focused()
        walk_to(reader, "link", "Jobs", back=True)
        keys.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Jobs of {shop}")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        expect(reader.part("Jobs found")).to_contain_text("jobs.")
        walk_to(reader, "button", "Cancel all that match…")
        keys.press("Enter")
        leave = page.get_by_role("dialog").get_by_role("button", name="Leave it")
        expect(leave).to_be_focused()
        keys.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name="Cancel all that match…")).to_be_focused()


def walk_to(reader: Reader, role: str, name: str, *, back: bool = False) -> None:
    """Moves by Tab until the focus is there."""
    wanted = reader.page.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]
    for _ in range(60):
        reader.page.keyboard.press("Shift+Tab" if back else "Tab")
        if wanted.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError(f"Tab does not lead to {name}")


def test_it_fits_a_narrow_screen(chromium: Browser, scene: Scene, shop: str) -> None:
    narrow = {"viewport": {"width": 320, "height": 700}}
    with reading(chromium, scene.url, TOKEN, **narrow) as reader:
        overview(reader, shop)
        wide = reader.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 320
