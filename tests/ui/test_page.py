"""What people see and do on the page."""

import re

import httpx
from playwright.sync_api import Browser, Page, expect
from tests.ui.reader import Reader, reading
from tests.ui.scene import HOSTILE, MAIL, READER, STRANGER, TOKEN, Scene

from queue_operator.api import page as served
from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.domain.job import Job
from queue_operator.settings import (
    AuthMode,
    AuthSettings,
    RestSettings,
    Settings,
    UiSettings,
)

MOST_BYTES = 300_000


def many(namespace: str, count: int, **fields: object) -> list[Job]:
    return [
        Job(id=f"job-{n:05}", namespace=namespace, **{"type": "t", **fields})  # type: ignore[arg-type]
        for n in range(count)
    ]


def tile(reader: Reader, title: str) -> str:
    link = reader.part("Jobs by state").get_by_role("link", name=re.compile(f"{title}$"))
    return str(link.locator("strong").inner_text())


def test_the_page_says_what_the_api_says(reader: Reader, scene: Scene, shop: str) -> None:
    reader.open(ns=shop)
    sentence = reader.part("Verdict").get_by_role("paragraph").first
    expect(sentence).to_contain_text("Degraded: no connected worker handles resize-image")
    told = scene.asked("GET", "/v1/verdict", shop)["sentence"]
    # The oldest grows older between two looks.
    assert re.sub(r"\d+ s\b", "", told) == re.sub(r"\d+ s\b", "", sentence.inner_text())
    assert [tile(reader, one) for one in ("Ready", "Running", "Completed", "Failed for good")] == [
        *("22", "4", "30", "12")
    ]
    expect(reader.part("Types that fail")).to_contain_text("mx<n>.example.com did not answer")
    expect(reader.part("Workers and slots")).to_contain_text("2 workers, 5 of 8 slots taken.")
    expect(reader.part("Pauses")).to_contain_text("the gateway is away")
    expect(reader.part("Oldest that wait, and why").get_by_role("row")).to_have_count(11)
    reader.part("Verdict").get_by_text("no connected worker").last.click()
    expect(reader.part("Verdict")).to_contain_text(f"kubectl -n {shop} get queueworkers,pods")


def test_a_dead_worker_is_seen(reader: Reader, scene: Scene, space: str) -> None:
    scene.run(scene.die(space, "mailer-7", 3))
    page = reader.open(ns=space)
    died = re.compile(r"worker mailer-7 died 2 min( \d+ s)? ago with 3 jobs")
    expect(reader.part("Verdict").get_by_role("paragraph").first).to_have_text(
        re.compile("^Degraded: " + died.pattern)
    )
    reader.part("Verdict").get_by_text(died).last.click()
    expect(reader.part("Verdict")).to_contain_text(f"kubectl -n {space} describe pod mailer-7")
    slots = reader.part("Workers and slots")
    expect(slots).to_contain_text("LOST 1 worker: mailer-7 with 3 jobs")
    slots.get_by_role("link", name="LOST 1 worker").click()
    gone = reader.part("Workers").get_by_role("row", name=re.compile("mailer-7 LOST"))
    expect(gone).to_contain_text(MAIL)
    assert scene.asked("GET", "/v1/workers", space)["lost"][0]["jobs"] == 3
    scene.run(scene.die(space, "mailer-8", 0))
    page.reload()
    expect(reader.part("Workers").get_by_role("row", name=re.compile("LOST"))).to_have_count(2)


def test_a_chart_can_be_read_as_a_table(reader: Reader, shop: str) -> None:
    page = reader.open(ns=shop)
    chart = page.get_by_role("img", name=re.compile("^Jobs per minute. submitted: last"))
    expect(chart).to_be_visible()
    assert chart.locator("path").count() == 4
    page.get_by_text("Jobs per minute as a table").click()
    rows = page.get_by_role("group", name="Jobs per minute as a table").get_by_role("row")
    assert rows.count() > 50


def test_a_tile_leads_to_the_jobs_and_back(reader: Reader, shop: str) -> None:
    page = reader.open(ns=shop)
    reader.part("Jobs by state").get_by_role("link", name=re.compile("Failed for good$")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Jobs of {shop}")
    expect(page.get_by_label("Dead letter")).to_be_checked()
    found = reader.part("Jobs found")
    expect(found).to_contain_text("12 jobs.")
    found.get_by_role("link", name="mail-030").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Job mail-030")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    deep = page.url
    page.go_back()
    expect(reader.part("Jobs found")).to_contain_text("12 jobs.")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("How is")
    page.goto(deep)
    expect(page.get_by_role("heading", level=1)).to_have_text("Job mail-030")


def test_a_state_that_there_is_not_is_told_of(reader: Reader, shop: str) -> None:
    page = reader.open("jobs", ns=shop, state="DAED_LETTER&state=constructor")
    expect(page.get_by_role("alert")).to_contain_text("DAED_LETTER")
    expect(reader.part("Jobs found")).to_contain_text("70 jobs.")
    reader.open("jobs", ns=shop, state="DEAD_LETTER")
    expect(reader.part("Jobs found")).to_contain_text("jobs.")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_job_shows_all_that_is_known_of_it(reader: Reader, shop: str) -> None:
    page = reader.open("job/mail-042", ns=shop)
    expect(reader.part("What it is")).to_contain_text("team=growth")
    expect(reader.part("Log")).to_contain_text("INFO connecting to mx1.example.com try=1")
    expect(reader.part("Payload")).to_contain_text('"to": "user42@example.com"')
    expect(reader.part("Timeline").get_by_role("listitem")).to_have_count(2)
    expect(reader.part("Why it does not run")).to_contain_text("runs the job")
    shell = f"queue-operator cancel mail-042 --namespace {shop}"
    expect(reader.part("What can be done")).to_contain_text(shell)
    page.get_by_role("searchbox").fill("mail-030")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Job mail-030")
    attempts = reader.part("Attempts")
    expect(attempts).to_contain_text("mx0.example.com did not answer within 30 s")
    expect(reader.part("Why it does not run")).to_be_hidden()
    page.get_by_role("searchbox").fill("team=growth")
    page.keyboard.press("Enter")
    expect(reader.part("Jobs found")).to_contain_text("60 jobs.")


def test_jobs_are_cancelled_by_a_filter_after_a_count(
    reader: Reader, scene: Scene, space: str
) -> None:
    scene.run(scene.queue.submit([*many(space, 7), Job(id="other", namespace=space, type="kept")]))
    page = reader.open("jobs", ns=space, type="t")
    page.get_by_role("button", name="Cancel all that match…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("7 jobs would be cancelled.")
    line = f"queue-operator cancel --type t --namespace {space}"
    expect(dialog).to_contain_text(line)
    assert scene.asked("GET", "/v1/stats", space)["scheduled"] == 8
    dialog.get_by_role("button", name="Cancel them").click()
    expect(page.get_by_role("status")).to_have_text("7 jobs cancelled.")
    expect(dialog).to_have_count(0)
    expect(reader.part("Jobs found").get_by_text("Cancelled")).to_have_count(7)
    assert scene.asked("GET", "/v1/stats", space)["scheduled"] == 1


def test_failed_jobs_are_tried_again_by_their_error(
    reader: Reader, scene: Scene, space: str
) -> None:
    scene.run(scene.play(space))
    page = reader.open(ns=space)
    page.get_by_role("button", name="Retry send-email with SMTP_TIMEOUT").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("9 jobs would be tried again.")
    dialog.get_by_role("button", name="Retry them").click()
    expect(page.get_by_role("status")).to_have_text("9 jobs tried again.")
    expect(reader.part("Types that fail")).to_contain_text("MAILBOX_FULL")
    retrying = reader.part("Jobs by state").get_by_role("link", name="9 Retrying")
    expect(retrying).to_be_visible()


def test_a_type_is_paused_and_resumed(reader: Reader, scene: Scene, space: str) -> None:
    scene.run(scene.queue.submit(many(space, 1)))
    page = reader.open(ns=space)
    page.get_by_role("button", name="Pause t", exact=True).click()
    page.get_by_label("Reason").fill("deploy")
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(reader.part("Verdict")).to_contain_text("Stuck: t is paused by on-call (deploy)")
    page.get_by_role("button", name="Resume t").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(reader.part("Pauses")).to_contain_text("Nothing is paused.")


def test_one_job_is_suspended_resumed_and_cancelled(
    reader: Reader, scene: Scene, space: str
) -> None:
    scene.run(scene.queue.submit(many(space, 1)))
    page = reader.open("job/job-00000", ns=space)
    for button, then in (
        ("Suspend", "Ready (suspended)"),
        ("Resume", "Ready"),
        ("Cancel", "Cancelled"),
    ):
        page.get_by_role("button", name=f"{button}…").click()
        page.get_by_role("dialog").get_by_role("button", name=f"{button} the job").click()
        state = reader.part("What it is").locator("dd").first
        expect(state).to_have_text(then)


def test_who_may_only_read_sees_no_buttons_and_is_refused(
    chromium: Browser, scene: Scene, shop: str
) -> None:
    with reading(chromium, scene.url, READER) as reader:
        for view in ("overview", "jobs", "job/mail-042", "job/mail-030", "workers", "webhooks"):
            page = reader.open(view, ns=shop)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator("#freshness")).to_contain_text("As of")
            buttons = {one.inner_text() for one in page.get_by_role("button").all()}
            assert buttons <= {"Sign out", "Copy", "Search"}, view
        answer = page.evaluate(
            "async (ns) => (await fetch(`v1/jobs/mail-042/cancel?namespace=${ns}`, {method: 'POST',"
            " headers: {Authorization: `Bearer ${sessionStorage.getItem('queue-operator-token')}`}}"
            ")).status",
            shop,
        )
        assert answer == 403


def test_who_may_not_look_is_told_so(chromium: Browser, scene: Scene, shop: str) -> None:
    with reading(chromium, scene.url, STRANGER) as reader:
        page = reader.open(ns=shop)
        expect(reader.part("Verdict")).to_contain_text(
            f"may not list queuejobs in namespace '{shop}'"
        )
        expect(page.locator("#freshness")).to_have_class("stale")


def test_a_token_stays_in_its_tab(chromium: Browser, scene: Scene, shop: str) -> None:
    with reading(chromium, scene.url, None) as reader:
        page = reader.open(ns=shop)
        expect(page.get_by_label("Token")).to_be_focused()
        reader.sign_in("wrong")
        expect(page.get_by_role("alert")).to_contain_text("unknown token")
        reader.sign_in(TOKEN)
        expect(reader.part("Verdict")).to_contain_text("resize-image")
        assert TOKEN not in page.url
        assert not [address for address in reader.asked if TOKEN in address]
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        assert reader.context.cookies() == []
        other = reader.context.new_page()
        other.goto(page.url)
        expect(other.get_by_label("Token")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_behind_a_proxy_that_adds_the_token_nobody_is_asked_for_one(
    chromium: Browser, scene: Scene, shop: str
) -> None:
    headers = {"Authorization": f"Bearer {READER}"}
    with reading(chromium, scene.url, None, extra_http_headers=headers) as reader:
        page = reader.open(ns=shop)
        expect(reader.part("Verdict")).to_contain_text("resize-image")
        expect(page.get_by_role("button", name="Sign out")).to_have_count(0)


def test_numbers_and_times_are_the_readers(chromium: Browser, scene: Scene, space: str) -> None:
    scene.run(scene.queue.submit(many(space, 1234, delay_s=3600.0)))
    german = {"locale": "de-DE", "timezone_id": "Europe/Berlin"}
    with reading(chromium, scene.url, TOKEN, **german) as reader:
        page = reader.open(ns=space)
        expect(
            reader.part("Jobs by state").get_by_role("link", name="1.234 Delayed")
        ).to_be_visible()
        page.goto(f"{scene.url}/ui#/job/job-00000?ns={space}")
        created = reader.part("What it is").locator("time").first
        expect(created).to_have_text(re.compile(r"^\d\d\.\d\d\.\d{4}, \d\d:\d\d:\d\d \(vor \d+"))
    with reading(chromium, scene.url, TOKEN) as reader:
        reader.open(ns=space)
        expect(
            reader.part("Jobs by state").get_by_role("link", name="1,234 Delayed")
        ).to_be_visible()


def test_what_jobs_say_is_never_html(reader: Reader, scene: Scene, space: str) -> None:
    scene.run(scene.hostile(space))
    page = reader.open(ns=space)

    def untouched() -> None:
        assert "taken" not in page.title().replace(HOSTILE, "")
        assert page.locator("main img, main script, header img, header script").count() == 0

    expect(reader.part("Types that fail")).to_contain_text("<img src=x")
    untouched()
    reader.part("Types that fail").get_by_role("link").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Job {HOSTILE}")
    expect(reader.part("Attempts")).to_contain_text(HOSTILE)
    expect(reader.part("Payload")).to_contain_text("<img src=x onerror=")
    expect(reader.part("Log")).to_contain_text(HOSTILE)
    untouched()
    page.get_by_role("button", name="Retry…").click()
    expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
    untouched()


def test_the_policy_keeps_out_what_is_not_of_the_page(chromium: Browser, scene: Scene) -> None:
    answer = httpx.get(f"{scene.url}/ui")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "style=" not in answer.text
    assert "<script>" not in answer.text
    with reading(chromium, scene.url, TOKEN) as reader:
        page = reader.open()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        spoiled = "() => { try { document.body.innerHTML = '<b>'; return 1; } catch { return 0; } }"
        assert page.evaluate(spoiled) == 0
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('img'),"
            " {src: 'https://elsewhere.example/x.png'}))"
        )
        expect_complaints(reader, "policy: img-src", "policy: require-trusted-types-for")


def expect_complaints(reader: Reader, *wanted: str) -> None:
    """The browser has complained of these, and is forgiven."""
    for one in wanted:
        while not any(one in told for told in reader.complaints):
            with reader.page.expect_console_message():
                pass
    reader.complaints.clear()


def test_it_is_small_and_asks_nobody_else(reader: Reader, scene: Scene, shop: str) -> None:
    page = reader.open(ns=shop)
    expect(page.locator("#freshness")).to_contain_text("As of")
    assert {address.split("/v1/")[0].split("/ui")[0] for address in reader.asked} == {scene.url}
    assert sum(len(served.content(name)[0]) for name in served.names()) < MOST_BYTES
    loaded = {address.rpartition("/")[2] for address in reader.asked if "/ui/" in address}
    assert loaded == {*served.names()} - {"index.html"}


def test_it_says_when_it_is_stale_and_recovers(reader: Reader, shop: str) -> None:
    page = reader.page
    page.clock.install()
    reader.open(ns=shop)
    freshness = page.locator("#freshness")
    expect(freshness).to_contain_text("As of")
    reader.context.set_offline(True)
    page.clock.fast_forward(6000)
    expect(freshness).to_have_class("stale")
    expect(freshness).to_contain_text("What is shown is of")
    expect(reader.part("Verdict")).to_contain_text("The server does not answer")
    expect(reader.part("Verdict")).to_contain_text("resize-image")
    reader.context.set_offline(False)
    # The second look comes later than the first would have.
    page.clock.fast_forward(11_000)
    expect(freshness).to_contain_text("As of")
    expect(reader.part("Verdict")).not_to_contain_text("The server does not answer")
    expect(reader.part("Verdict")).to_contain_text("resize-image")
    reader.complaints.clear()


def test_a_payload_is_asked_for_once(reader: Reader, shop: str) -> None:
    page = reader.page
    page.clock.install()
    reader.open("job/mail-030", ns=shop)
    expect(page.locator("#freshness")).to_contain_text("As of")
    with page.expect_request(re.compile("/v1/jobs/mail-030.*include_payload=false")):
        page.clock.fast_forward(6000)
    expect(reader.part("Payload")).to_contain_text("user30@example.com")


def test_an_id_is_no_option_of_a_command(reader: Reader, scene: Scene, space: str) -> None:
    scene.run(scene.queue.submit([Job(id="--force", namespace=space, type="t")]))
    reader.open("job/--force", ns=space)
    told = f"queue-operator cancel --namespace {space} -- --force"
    expect(reader.part("What can be done")).to_contain_text(told)


def test_a_view_that_is_not_there_is_the_overview(reader: Reader, shop: str) -> None:
    reader.open("constructor", ns=shop)
    expect(reader.part("Verdict")).to_contain_text("resize-image")
    assert reader.page.title().startswith("Overview")


def test_a_hidden_page_does_not_look(reader: Reader, shop: str) -> None:
    page = reader.page
    page.clock.install()
    reader.open(ns=shop)
    expect(page.locator("#freshness")).to_contain_text("As of")
    hide(page, hidden=True)
    before = len(reader.asked)
    page.clock.fast_forward(60_000)
    assert len(reader.asked) == before
    with page.expect_request(re.compile("/v1/verdict")):
        hide(page, hidden=False)


def hide(page: Page, *, hidden: bool) -> None:
    told = str(hidden).lower()
    page.evaluate(
        f"Object.defineProperty(document, 'hidden', {{value: {told}, configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_a_look_leaves_focus_and_open_parts_alone(reader: Reader, scene: Scene, space: str) -> None:
    scene.run(scene.queue.submit(many(space, 2)))
    page = reader.page
    page.clock.install()
    reader.open(ns=space)
    link = reader.part("Jobs by state").get_by_role("link", name=re.compile("Ready$"))
    link.focus()
    scene.run(scene.queue.submit([Job(id="new", namespace=space, type="t")]))
    page.clock.fast_forward(6000)
    expect(link).to_contain_text("3")
    expect(link).to_be_focused()


def test_a_server_can_be_without_the_page(scene: Scene) -> None:
    for enabled, status in ((True, 200), (False, 404)):
        door = scene.run(door_with(scene, enabled))
        with httpx.Client(base_url=door.url) as http:
            answer = http.get("/ui")
            assert answer.status_code == status
            if enabled:
                again = http.get("/ui", headers={"if-none-match": answer.headers["etag"]})
                assert (again.status_code, again.content) == (304, b"")
                script = http.get("/ui/main.js")
                assert script.headers["content-type"].startswith("text/javascript")
            assert http.get("/ui/..%2Fpage.py").status_code == 404
        scene.run(door.stop())


async def door_with(scene: Scene, enabled: bool) -> RestServer:
    """Another server of the same queue."""
    settings = Settings(
        rest=RestSettings(host="127.0.0.1", port=0),
        auth=AuthSettings(mode=AuthMode.NONE),
        ui=UiSettings(enabled=enabled),
    )
    door = RestServer(create_app(scene.queue, *build(settings.auth), settings), settings.rest)
    await door.start()
    return door
