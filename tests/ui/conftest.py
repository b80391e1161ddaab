"""The page in a real Chromium, of a real server over PostgreSQL."""

import asyncio
import threading
import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.conftest import empty_database
from tests.ui.reader import Reader, reading
from tests.ui.scene import TOKEN, Scene, serving

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="session")
def scene(postgres_admin_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, loop).result(120)  # type: ignore[arg-type]

    with empty_database(postgres_admin_dsn, "ui") as dsn:
        stage = serving(dsn, tmp_path_factory.mktemp("ui"))
        yield run(stage.__aenter__())  # type: ignore[misc]
        run(stage.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def shop(scene: Scene) -> str:
    """A namespace that tests only look at."""
    name = f"shop-{uuid.uuid4().hex[:6]}"
    scene.run(scene.play(name))
    scene.run(scene.aged(name, 120))
    scene.run(scene.past(name))
    return name


@pytest.fixture(autouse=True)
def _alive(scene: Scene) -> None:
    """Workers are heard of as each test begins."""
    scene.run(scene.beat())


@pytest.fixture
def space(scene: Scene) -> str:
    """One that a test may change."""
    return f"ns-{uuid.uuid4().hex[:8]}"


# While it is there, no coroutine can run in this thread: those of other folders must.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def reader(chromium: Browser, scene: Scene) -> Iterator[Reader]:
    """Somebody with all rights, in English and in UTC."""
    with reading(chromium, scene.url, TOKEN) as one:
        yield one
