"""Webhooks, as the clients and the commands list, show, send again and purge them."""

import json
from typing import Any

import pytest
from tests.integration.client.stage import TOKEN, Stage

from queue_operator.backends.webhooks import MessageState, Told
from queue_operator.client import AsyncQueueClient, Submission
from queue_operator.domain.errors import InvalidArgument, MessageNotFound

HOOK = "https://receiver.example/jobs"


def ended(stage: Stage) -> str:
    """A job that was cancelled, and of which somebody is told."""
    with stage.client() as queue:
        wanted = Submission(type="t", payload=1, callback_url=HOOK)
        job_id = queue.submit(wanted, namespace=stage.namespace).job_id
        assert job_id is not None
        queue.cancel(job_id, namespace=stage.namespace)
    return job_id


def failed(stage: Stage) -> None:
    """The messages of the namespace, tried in vain."""
    store = stage.backend.webhooks
    found = stage.run(store.claim("sender", limit=1000, per_receiver=1000, lease_s=60.0))
    mine = [one for one in found if one.namespace == stage.namespace]
    told: dict[str, Any] = {"state": MessageState.FAILED, "status": 503, "error": "\x1b[31maway"}
    stage.run(store.settle([Told(id=one.id, claim=one.claim, **told) for one in mine]))


def test_messages_are_listed_and_shown(stage: Stage) -> None:
    assert stage.type("webhooks", "list").stderr == "no messages\n"
    first, second = ended(stage), ended(stage)
    failed(stage)
    listed = stage.json("webhooks", "list", "--state", "failed")["messages"]
    assert [one["job_id"] for one in listed] == [second, first]
    ids = stage.type("webhooks", "list", "--job", first, "-o", "ids").stdout.split()
    assert ids == [listed[1]["id"]]
    assert len(stage.type("webhooks", "list", "--limit", "1", "-o", "ids").stdout.split()) == 1
    table = stage.type("webhooks", "list").stdout
    assert "\\x1b[31maway" in table
    shown = stage.type("webhooks", "show", ids[0]).stdout
    for text in (first, HOOK, "FAILED", "503", "\\x1b[31maway"):
        assert text in shown
    assert stage.json("webhooks", "show", ids[0]) == listed[1]
    missing = stage.type("webhooks", "show", "msg")
    assert missing.exit_code == 1
    assert "`queue-operator webhooks list`" in missing.stderr


def test_a_job_shows_whether_somebody_was_told(stage: Stage) -> None:
    job_id = ended(stage)
    assert "PENDING after 0 tries" in stage.type("get", job_id).stdout
    failed(stage)
    shown = stage.type("get", job_id).stdout
    assert HOOK in shown
    assert "FAILED after 1 try: \\x1b[31maway" in shown
    stage.type("webhooks", "purge", "--state", "FAILED", "--yes")
    assert "DELIVERED, or deleted" in stage.type("get", job_id).stdout


def test_messages_are_sent_again_and_purged(stage: Stage) -> None:
    ended(stage)
    ended(stage)
    failed(stage)
    assert stage.type("webhooks", "redeliver", "--state", "FAILED").exit_code == 2
    done = stage.type("webhooks", "redeliver", "--state", "FAILED", "--dry-run")
    assert done.stdout == "2 messages would be redelivered\n"
    [first, _] = stage.type("webhooks", "list", "-o", "ids").stdout.split()
    assert stage.json("webhooks", "redeliver", first) == {"redelivered": 1, "dry_run": False}
    done = stage.type("webhooks", "redeliver", "--state", "FAILED", "--yes")
    assert done.stdout == "1 message redelivered\n"
    assert stage.type("webhooks", "purge", first).stdout == "1 message purged\n"
    assert stage.json("webhooks", "purge", "--state", "PENDING", "--yes")["purged"] == 1
    assert stage.json("webhooks", "list") == {"messages": []}


@pytest.mark.parametrize("command", ["redeliver", "purge"])
def test_ids_that_are_none_of_messages_are_told_of(stage: Stage, command: str) -> None:
    job_id = ended(stage)
    failed(stage)
    [known] = stage.type("webhooks", "list", "-o", "ids").stdout.split()
    done = stage.type("webhooks", command, known, job_id)
    assert (done.exit_code, done.stdout[:9]) == (1, "1 message")
    assert "1 message not there" in done.stderr
    assert "`queue-operator webhooks list`" in done.stderr


def test_a_list_that_is_cut_says_so(stage: Stage) -> None:
    ended(stage)
    ended(stage)
    done = stage.type("webhooks", "list", "--limit", "1", "-o", "ids")
    assert (len(done.stdout.split()), done.stderr) == (1, "the newest 1; --limit shows more\n")
    assert stage.type("webhooks", "list", "--limit", "2", "-o", "ids").stderr == ""


@pytest.mark.parametrize("command", ["redeliver", "purge"])
@pytest.mark.parametrize("arguments", [(), ("m", "--state", "FAILED")])
def test_what_cannot_be_meant(stage: Stage, command: str, arguments: tuple[str, ...]) -> None:
    done = stage.type("webhooks", command, *arguments, "-o", "json")
    assert done.exit_code == 2
    assert json.loads(done.stderr)["error"]["message"] == "give ids or --state, one of the two"


def test_the_client_goes_through_all_pages(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_operator.client.telling.PAGE_MESSAGES", 2)
    jobs = [ended(stage) for _ in range(3)]
    with stage.client() as queue:
        found = queue.webhooks_all(namespace=stage.namespace)
        assert [one.job_id for one in found] == [*reversed(jobs)]
        with pytest.raises(MessageNotFound, match="'msg'"):
            queue.webhook("msg", namespace=stage.namespace)
        with pytest.raises(InvalidArgument, match="ids"):
            queue.purge_webhooks("msg", namespace=stage.namespace)


def test_the_asynchronous_client_does_likewise(stage: Stage) -> None:
    job_id = ended(stage)
    failed(stage)

    async def use() -> None:
        async with AsyncQueueClient(stage.url, TOKEN) as queue:
            here: dict[str, Any] = {"namespace": stage.namespace}
            [one] = [one async for one in queue.webhooks_all(state="FAILED", **here)]
            assert (await queue.webhook(one.id, **here)).job_id == job_id
            assert (await queue.redeliver_webhooks([one.id], **here)).redelivered == 1
            assert (await queue.purge_webhooks(state="PENDING", **here)).purged == 1

    stage.run(use())
