"""What people see and do on the page about messages to callback URLs."""

import re

from playwright.sync_api import Browser, expect
from tests.ui.reader import Reader, reading
from tests.ui.scene import HOSTILE, READER, Scene

from queue_operator.backends.webhooks import MessageState, Told
from queue_operator.domain.job import Job

HOOK = "https://hooks.example.com/mails"


async def ended(scene: Scene, namespace: str, count: int, **told: object) -> None:
    """So many jobs that were cancelled, and what came of the messages about them."""
    url = str(told.pop("url", HOOK))
    jobs = [
        Job(id=f"{namespace}-{n}", namespace=namespace, type="t", callback_url=url)
        for n in range(count)
    ]
    await scene.queue.submit(jobs)
    await scene.backend.cancel_jobs([], [job.id for job in jobs], namespace=namespace)
    box = scene.backend.webhooks
    claimed = await box.claim("s", limit=1000, per_receiver=1000, lease_s=3600.0)
    mine = [one for one in claimed if one.namespace == namespace]
    await box.settle([Told(id=one.id, claim=one.claim, **told) for one in mine])  # type: ignore[arg-type]


def states(scene: Scene, namespace: str) -> list[str]:
    return [one["state"] for one in scene.asked("GET", "/v1/webhooks", namespace)["messages"]]


def test_messages_are_listed_by_state(reader: Reader, shop: str) -> None:
    page = reader.open(ns=shop)
    page.get_by_role("link", name="Webhooks").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Messages of {shop}")
    found = reader.part("Messages found")
    expect(found.get_by_role("row")).to_have_count(6)
    expect(found.get_by_role("button", name="Purge all…")).to_have_count(0)
    page.get_by_role("link", name="To be told").click()
    expect(page.get_by_role("link", name="To be told")).to_have_attribute("aria-current", "true")
    row = found.get_by_role("row", name=re.compile("mail-002"))
    expect(row).to_contain_text("answered 503")
    # In two hours, or a little less.
    expect(row.get_by_role("cell").nth(5)).to_contain_text(re.compile(r"in (1|2) hr"))
    expect(row.get_by_role("button")).to_have_count(0)
    page.get_by_role("link", name="Given up").click()
    expect(found.get_by_role("row")).to_have_count(3)
    expect(found).to_contain_text("refused: 10.0.0.7 is inside")
    found.get_by_role("link", name="mail-030").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Job mail-030")


def test_a_state_that_there_is_not_is_told_of(reader: Reader, shop: str) -> None:
    page = reader.open("webhooks", ns=shop, state="constructor")
    expect(page.get_by_role("alert")).to_contain_text("constructor")
    expect(reader.part("Messages found").get_by_role("row")).to_have_count(6)


def test_the_overview_says_that_messages_fail(reader: Reader, scene: Scene, space: str) -> None:
    scene.run(ended(scene, space, 5, state=MessageState.FAILED, status=410, error="answered 410"))
    page = reader.open(ns=space)
    told = "5 messages to callback URLs were given up, mostly https://hooks.example.com:443"
    verdict = reader.part("Verdict")
    expect(verdict.get_by_role("paragraph").first).to_have_text(f"Degraded: {told}: answered 410.")
    verdict.get_by_text(told).last.click()
    expect(verdict).to_contain_text(
        f"queue-operator webhooks list --state FAILED --namespace {space}"
    )
    expect(verdict).to_contain_text("docs/runbooks/README.md#queueoperatorwebhooksfail")
    verdict.get_by_role("link", name="Those that were given up").click()
    expect(page.get_by_role("link", name="Given up")).to_have_attribute("aria-current", "true")
    expect(reader.part("Messages found").get_by_role("row")).to_have_count(6)


def test_all_that_were_given_up_are_sent_again_after_a_count(
    reader: Reader, scene: Scene, space: str
) -> None:
    scene.run(ended(scene, space, 3, state=MessageState.FAILED, error="away"))
    page = reader.open("webhooks", ns=space, state="FAILED")
    page.get_by_role("button", name="Send all again…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 messages would be sent again.")
    expect(dialog).to_contain_text(
        f"queue-operator webhooks redeliver --state FAILED --namespace {space}"
    )
    assert states(scene, space) == ["FAILED"] * 3
    dialog.get_by_role("button", name="Send them").click()
    expect(page.get_by_role("status")).to_have_text("3 messages sent again.")
    expect(reader.part("Messages found")).to_contain_text("No such messages.")
    assert states(scene, space) == ["PENDING"] * 3


def test_all_that_were_given_up_are_purged_after_a_count(
    reader: Reader, scene: Scene, space: str
) -> None:
    scene.run(ended(scene, space, 2, state=MessageState.FAILED, error="away"))
    page = reader.open("webhooks", ns=space, state="FAILED")
    page.get_by_role("button", name="Purge all…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 messages would be deleted, and never be sent again.")
    dialog.get_by_role("button", name="Purge them").click()
    expect(page.get_by_role("status")).to_have_text("2 messages purged.")
    assert states(scene, space) == []


def test_a_job_shows_who_was_told_and_has_it_sent_again(
    reader: Reader, scene: Scene, space: str
) -> None:
    scene.run(ended(scene, space, 1, state=MessageState.DELIVERED, status=204))
    page = reader.open(f"job/{space}-0", ns=space)
    told = reader.part("Who is told of its end")
    expect(told).to_contain_text(HOOK)
    expect(told).to_contain_text("answered 204")
    [message] = scene.asked("GET", "/v1/webhooks", space)["messages"]
    expect(told).to_contain_text(
        f"queue-operator webhooks redeliver {message['id']} --namespace {space}"
    )
    told.get_by_role("button", name=f"Send again: {space}-0").click()
    page.get_by_role("dialog").get_by_role("button", name="Send it").click()
    expect(page.get_by_role("status")).to_have_text("The message is sent again.")
    expect(told).to_contain_text("not tried yet")
    expect(told.get_by_role("button", name="Send again")).to_have_count(0)
    assert states(scene, space) == ["PENDING"]


def test_a_job_that_nobody_asked_about_shows_no_messages(reader: Reader, shop: str) -> None:
    page = reader.open("job/mail-042", ns=shop)
    expect(page.locator("#freshness")).to_contain_text("As of")
    expect(reader.part("Who is told of its end")).to_be_hidden()


def test_who_may_only_read_sees_what_was_answered(
    chromium: Browser, scene: Scene, shop: str
) -> None:
    with reading(chromium, scene.url, READER) as reader:
        reader.open("job/mail-030", ns=shop)
        told = reader.part("Who is told of its end")
        expect(told).to_contain_text("answered 410")
        expect(told).to_contain_text("queue-operator webhooks show msg_")
        expect(told).not_to_contain_text("redeliver")


def test_what_receivers_say_is_never_html(reader: Reader, scene: Scene, space: str) -> None:
    scene.run(ended(scene, space, 5, state=MessageState.FAILED, error=HOSTILE))
    page = reader.open("webhooks", ns=space)
    expect(reader.part("Messages found")).to_contain_text("<img src=x onerror=")
    page = reader.open(ns=space)
    expect(reader.part("Verdict")).to_contain_text("<img src=x")
    assert page.locator("main img, main script").count() == 0
    assert "taken" not in page.title()
