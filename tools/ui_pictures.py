"""Draws the pictures of the page in `docs/guides/page.md`: a queue with something of everything, in
Chromium, of a server over a PostgreSQL that is made for it and taken down again.

    python tools/ui_pictures.py [FOLDER]
"""

import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright
from tests.conftest import empty_database
from tests.ui.conftest import CHROMIUM
from tests.ui.reader import Reader, reading
from tests.ui.scene import TOKEN, Scene, serving

from queue_operator.devcluster import Postgres

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs" / "guides" / "images"
SPACE: Final = "shop"
MOST_BYTES: Final = 150_000
_PORT: Final = 25_533
_WIDTH: Final = 1000
_COLOURS: Final = 48


def overview(reader: Reader) -> Page:
    """The verdict and what it rests on."""
    page = reader.open(ns=SPACE)
    expect(reader.part("Pauses")).to_contain_text("gateway")
    expect(reader.part("Throughput and latency").get_by_role("img")).to_have_count(3)
    reader.part("Verdict").get_by_text("no connected worker").last.click()
    return page


def jobs(reader: Reader) -> Page:
    """A search, and what can be done with all that it finds."""
    page = reader.open("jobs", ns=SPACE, state="DEAD_LETTER")
    expect(reader.part("Jobs found")).to_contain_text("9 jobs.")
    return page


def cancel(reader: Reader) -> Page:
    """The count before a change of many."""
    page = reader.open("jobs", ns=SPACE, type="resize-image")
    page.get_by_role("button", name="Cancel all that match…").click()
    expect(page.get_by_role("dialog")).to_contain_text("7 jobs would be cancelled.")
    return page


def job(reader: Reader) -> Page:
    """One job that failed."""
    page = reader.open("job/mail-030", ns=SPACE)
    expect(reader.part("Attempts").get_by_role("row").nth(1)).to_be_visible()
    expect(reader.part("Who is told of its end")).to_contain_text("answered 410")
    return page


def webhooks(reader: Reader) -> Page:
    """What became of messages to callback URLs."""
    page = reader.open("webhooks", ns=SPACE)
    expect(reader.part("Messages found").get_by_role("row")).to_have_count(6)
    return page


PICTURES: Final[dict[str, tuple[Callable[[Reader], Page], str]]] = {
    "ui-overview": (overview, "light"),
    "ui-overview-dark": (overview, "dark"),
    "ui-jobs": (jobs, "light"),
    "ui-cancel": (cancel, "light"),
    "ui-job": (job, "light"),
    "ui-webhooks": (webhooks, "light"),
}


def main(folder: Path = FOLDER) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    too_large = []
    with playing() as scene, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (draw, scheme) in PICTURES.items():
            scene.run(scene.beat())
            view = {"width": _WIDTH, "height": 800}
            with reading(browser, scene.url, TOKEN, color_scheme=scheme, viewport=view) as reader:
                path = folder / f"{name}.png"
                page = draw(reader)
                expect(page.locator("#freshness")).to_contain_text("As of")
                page.screenshot(path=path, full_page=name != "ui-cancel")
                # A page has few colours.
                Image.open(path).convert("RGB").quantize(_COLOURS).save(path, optimize=True)
                size = path.stat().st_size
                print(f"{path}: {size:,} bytes")
                if size > MOST_BYTES:
                    too_large.append(path)
        browser.close()
    for path in too_large:
        print(f"{path} is over {MOST_BYTES:,} bytes", file=sys.stderr)
    return 1 if too_large else 0


@contextmanager
def playing() -> Iterator[Scene]:
    """The scene, on a database of its own."""
    # Not in a temporary folder of its own: the server's user must be able to reach it.
    folder = Path(f"/var/tmp/queue-operator-ui-postgres-{_PORT}")  # noqa: S108
    server = Postgres(folder, "127.0.0.1", _PORT)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(120)

    try:
        server.start()
        with empty_database(server.admin_dsn, "ui") as dsn, tempfile.TemporaryDirectory() as kept:
            stage = serving(dsn, Path(kept))
            scene = run(stage.__aenter__())
            for prepared in (scene.play(SPACE), scene.aged(SPACE, 120), scene.past(SPACE)):
                run(prepared)
            yield scene
            run(stage.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
