"""A queue with something of everything, for the page to show: also by `tools/ui_pictures.py`."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import yaml
from pydantic import SecretStr

from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.backends.lost_workers import Loss
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.protocol import LogLine, LogReport, Pause, WorkerSession
from queue_operator.backends.webhooks import MessageState, Told
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.service import QueueService
from queue_operator.settings import AuthMode, AuthSettings, RestSettings, Settings

T = TypeVar("T")

TOKEN: Final = "a-token-for-tests"
READER: Final = "a-token-that-reads"
STRANGER: Final = "a-token-of-elsewhere"
CALLERS: Final = [
    {"name": "on-call", "token": TOKEN, "scopes": ["admin"], "namespaces": ["*"]},
    {"name": "reader", "token": READER, "scopes": ["read"], "namespaces": ["*"]},
    {"name": "stranger", "token": STRANGER, "scopes": ["read"], "namespaces": ["elsewhere"]},
]
HOSTILE: Final = (
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
)
"""What would take the page over, were it HTML."""
MAIL: Final = "send-email"
RESIZE: Final = "resize-image"


@dataclass(frozen=True)
class Scene:
    """A server in a loop of its own."""

    url: str
    loop: asyncio.AbstractEventLoop
    queue: QueueService
    backend: PostgresBackend

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def asked(self, method: str, path: str, namespace: str, body: Any = None, **params: Any) -> Any:
        """What the server answers to an administrator."""
        answer = httpx.request(
            method,
            f"{self.url}{path}",
            params={"namespace": namespace, **params},
            json=body,
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        assert answer.is_success, answer.text
        return answer.json()

    async def claim(self, namespace: str, limit: int, *types: str) -> list[Any]:
        demand = Demand(
            assignee_id="mailer-1", limit=limit, namespace=namespace, types=frozenset(types)
        )
        return await self.backend.claim([demand], lease_ttl_s=3600.0)

    async def end(self, claimed: list[Any], event: Event, *errors: ErrorInfo) -> None:
        outcomes = [
            Outcome(
                one.job_id,
                event,
                one.namespace,
                token=one.token,
                error=errors[place % len(errors)] if errors else None,
                result=b'{"sent":true}' if event is Event.COMPLETE else b"",
                result_content_type="application/json" if event is Event.COMPLETE else "",
            )
            for place, one in enumerate(claimed)
        ]
        for answer in await self.backend.settle(outcomes):
            assert answer.error is None, answer.error

    async def play(self, namespace: str) -> None:
        """Mails of which some fail, images that nobody resizes, a pause, two workers, and a job
        that says bad things.
        """
        await self._workers(namespace)
        await self.queue.submit([_mail(namespace, n) for n in range(60)])
        await self.end(await self.claim(namespace, 30, MAIL), Event.COMPLETE)
        away = [
            ErrorInfo(f"mx{n}.example.com did not answer within 30 s", code="SMTP_TIMEOUT")
            for n in range(3)
        ]
        full = ErrorInfo("the mailbox of 'ada' is full", ErrorCategory.PERMANENT, "MAILBOX_FULL")
        await self.end(await self.claim(namespace, 12, MAIL), Event.EXHAUST, *away, full)
        await self.tell(namespace)
        running = await self.claim(namespace, 4, MAIL)
        await self._log(running[0])
        await self.queue.submit([_image(namespace, n) for n in range(7)])
        await self.queue.submit(
            [
                Job(id="nightly-report", namespace=namespace, type="report", delay_s=3600.0),
                Job(
                    id="after-report",
                    namespace=namespace,
                    type="report",
                    depends_on=("nightly-report",),
                ),
                Job(id="sms-1", namespace=namespace, type="send-sms"),
            ]
        )
        await self.backend.pause(
            Pause(namespace=namespace, type="send-sms", reason="the gateway is away", by="alice")
        )

    async def tell(self, namespace: str) -> None:
        """What came of the messages about the jobs that ended and have a callback URL."""
        box = self.backend.webhooks
        claimed = await box.claim("s", limit=1000, per_receiver=1000, lease_s=3600.0)
        mine = [one for one in claimed if one.namespace == namespace]
        await box.settle([Told(id=one.id, claim=one.claim, **_ANSWERS[one.job_id]) for one in mine])

    async def beat(self) -> None:
        """All workers are heard of."""
        await self.backend.touch_sessions(await self.backend.list_sessions())

    async def die(self, namespace: str, name: str, jobs: int) -> None:
        """A worker of that name went without a goodbye."""
        session_id = f"{name}-{namespace}"
        await self.backend.open_session(
            WorkerSession(
                session_id=session_id,
                namespace=namespace,
                worker_name=name,
                types=frozenset({MAIL}),
            )
        )
        await self.backend.lose_sessions([Loss(session_id=session_id, jobs=jobs, ago_s=120.0)])

    async def hostile(self, namespace: str) -> str:
        """The id of a job all of whose texts would be HTML. It has failed."""
        bad = Job(
            id=HOSTILE,
            namespace=namespace,
            type=HOSTILE,
            payload=json.dumps({HOSTILE: HOSTILE}).encode(),
            content_type="application/json",
            tags=frozenset({"a=" + HOSTILE[:100]}),
            correlation_id=HOSTILE,
            max_attempts=3,
        )
        await self.queue.submit([bad])
        claimed = await self.claim(namespace, 1, HOSTILE)
        await self._log(claimed[0], HOSTILE)
        error = ErrorInfo(HOSTILE, code=HOSTILE, stack_trace=HOSTILE, context={HOSTILE: HOSTILE})
        await self.end(claimed, Event.EXHAUST, error)
        return bad.id

    async def _workers(self, namespace: str) -> None:
        for name, busy in (("mailer-1", 4), ("mailer-2", 1)):
            await self.backend.open_session(
                WorkerSession(
                    session_id=f"{name}-{namespace}",
                    namespace=namespace,
                    worker_name=name,
                    host="10.244.0.7",
                    replica="queue-operator-0",
                    version="0.1.0",
                    types=frozenset({MAIL, "report", "send-sms"}),
                    capacity=4,
                    busy=busy,
                )
            )

    async def _log(self, claimed: Any, text: str = "connecting to mx1.example.com") -> None:
        lines = tuple(
            LogLine(number=n, at=datetime.now(UTC), level="INFO", message=text, fields='{"try": 1}')
            for n in range(1, 4)
        )
        report = LogReport(
            job_id=claimed.job_id, token=claimed.token, namespace=claimed.namespace, lines=lines
        )
        await self.backend.append_logs([report])

    async def aged(self, namespace: str, seconds: int) -> None:
        """All that waits in the namespace has waited for so long."""
        async with self.backend._pool.connection() as connection:
            await connection.execute(
                "UPDATE ready SET eligible_at = eligible_at - make_interval(secs => %s) WHERE due "
                "AND lane_id IN (SELECT id FROM lane WHERE namespace_id = "
                "(SELECT id FROM namespace WHERE name = %s))",
                (seconds, namespace),
            )

    async def past(self, namespace: str) -> None:
        """An hour that the roll-ups tell of, as a wave."""
        minute = datetime.now(UTC).replace(second=0, microsecond=0)
        async with self.backend._pool.connection() as connection:
            for ago in range(1, 60):
                at = minute - timedelta(minutes=ago)
                done = round(220 + 90 * math.sin(ago / 9))
                failed = max(0, round(40 - 3 * ago)) if ago < 14 else 1
                counts = (at, done + failed, done, failed)
                await connection.execute(_ROLLED, (*counts, namespace, MAIL))
                for waits, bucket in ((True, 170 + ago % 5), (False, 190)):
                    took = (at, waits, [bucket, bucket + 24], [done, 9], 10**6)
                    await connection.execute(_TOOK, (*took, namespace))


_ANSWERS: Final[dict[str, Any]] = {
    "mail-000": {"state": MessageState.DELIVERED, "status": 204},
    "mail-001": {"state": MessageState.DELIVERED, "status": 200},
    "mail-002": {
        **{"state": MessageState.PENDING, "after_s": 7200.0},
        **{"status": 503, "error": "answered 503"},
    },
    "mail-030": {"state": MessageState.FAILED, "status": 410, "error": "answered 410"},
    "mail-031": {"state": MessageState.FAILED, "error": "refused: 10.0.0.7 is inside"},
}
"""What became of the messages about these jobs."""
_ROLLED: Final = (
    "INSERT INTO roll_up SELECT namespace.id, 60, %s, job_type.id, 'NORMAL', %s, %s, 0, 0, 0, %s "
    "FROM namespace, job_type WHERE namespace.name = %s AND job_type.name = %s"
)
_TOOK: Final = (
    "INSERT INTO roll_up_latency SELECT id, 60, %s, %s, %s, %s, %s FROM namespace WHERE name = %s"
)


def _mail(namespace: str, number: int) -> Job:
    return Job(
        id=f"mail-{number:03}",
        namespace=namespace,
        type=MAIL,
        payload=json.dumps({"to": f"user{number}@example.com", "template": "welcome"}).encode(),
        content_type="application/json",
        tags=frozenset({"team=growth"}),
        max_attempts=3,
        callback_url="https://hooks.example.com/mails" if f"mail-{number:03}" in _ANSWERS else "",
    )


def _image(namespace: str, number: int) -> Job:
    return Job(id=f"image-{number}", namespace=namespace, type=RESIZE, payload=b"{}")


@asynccontextmanager
async def serving(dsn: str, folder: Path) -> AsyncIterator[Scene]:
    """A server over the database."""
    tokens = folder / "tokens.yaml"
    tokens.write_text(yaml.safe_dump({"tokens": CALLERS}))
    settings = Settings(
        rest=RestSettings(host="127.0.0.1", port=0),
        auth=AuthSettings(
            mode=AuthMode.STATIC, tokens={"root": SecretStr("root")}, tokens_file=tokens
        ),
    )
    await migrate(dsn)
    backend = await PostgresBackend.open(dsn)
    queue = QueueService(backend, settings.queue)
    await queue.start()
    door = RestServer(create_app(queue, *build(settings.auth), settings), settings.rest)
    await door.start()
    yield Scene(f"http://127.0.0.1:{door.port}", asyncio.get_running_loop(), queue, backend)
    await door.stop()
    await queue.close()
