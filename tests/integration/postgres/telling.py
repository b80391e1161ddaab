"""A call that has messages of webhooks written and told, on jobs as `million.py` makes them."""

import uuid
from dataclasses import replace

from tests.integration.postgres import million
from tests.integration.postgres.big import WORKER, new_jobs, outcome

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.webhooks import MessageSearch, MessageState, Told, receiver_of
from queue_operator.domain.job import Demand
from queue_operator.domain.lease import Held
from queue_operator.domain.states import Event


async def tell_of_ends(backend: PostgresBackend) -> None:
    """Jobs complete, fail, are given up and complete late; their messages are told, and so on."""
    url, tag = "https://receiver.example/hook", uuid.uuid4().hex
    jobs = new_jobs(12, callback_url=url, tags=frozenset({tag}), max_attempts=1)
    await backend.enqueue_jobs(jobs)
    await backend._arrivals.catch_up()
    demand = Demand(assignee_id=WORKER, limit=10, namespace=million.BIG, tags=frozenset({tag}))
    held = [
        Held(a.job_id, a.token, a.namespace) for a in await backend.claim([demand], lease_ttl_s=600)
    ]
    await backend.settle([outcome(h, Event.COMPLETE) for h in held[:4]])
    await backend.settle([outcome(h, Event.FAIL) for h in held[4:8]])
    await backend.settle([outcome(h, Event.MARK_UNKNOWN_STOPPED) for h in held[8:]])
    await backend.settle([outcome(h, Event.COMPLETE) for h in held[8:]])
    await backend.cancel_jobs([], [job.id for job in jobs], namespace=million.BIG)
    box = backend.webhooks
    full = [receiver_of("nobody's", url)]
    messages = await box.claim("s", limit=100, per_receiver=8, lease_s=60.0, full=full)
    assert messages or not held
    states = [MessageState.DELIVERED, MessageState.FAILED, MessageState.PENDING]
    told = [
        Told(id=one.id, claim=one.claim, state=states[n % 3], status=200)
        for n, one in enumerate(messages)
    ]
    await box.settle(told)
    await box.stock()
    await box.standing(million.BIG)
    for search in (MessageSearch(namespace=million.BIG), MessageSearch(job_id=jobs[0].id)):
        await box.search(replace(search, namespace=million.BIG, limit=10))
    for one in messages[:2]:
        await box.get(one.id, namespace=one.namespace)
        await box.redeliver(one.namespace, ids=[one.id])
    assert await box.count(million.BIG, ids=[one.id for one in messages]) == len(messages)
    await box.count(million.BIG, state=MessageState.FAILED, limit=2)
    await box.redeliver(million.BIG, state=MessageState.FAILED, limit=2)
    await box.purge(million.BIG, state=MessageState.PENDING, limit=2)
    await box.prune(delivered_s=0.0, failed_s=0.0, limit=100)
