"""Tokens that somebody makes up keep nobody waiting whose token was good before."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.unit.auth.apiserver import reviews_by
from tests.waiting import DEADLINE_S

from queue_operator.auth.answers import Answers
from queue_operator.auth.kubernetes import MOST_STRANGERS, TOKEN_TTL_S, KubernetesAuthenticator
from queue_operator.domain.errors import QuotaExceeded, Unauthenticated, Unavailable

AUDIENCE = "queue-operator"
KNOWN = "known"


class ApiServer(ThreadingHTTPServer):
    """Vouches for one token at once, and for no other, as late as it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Reviewing)
        self.stranger_came = threading.Event()
        self.answer = threading.Event()


class Reviewing(BaseHTTPRequestHandler):
    server: ApiServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_known = asked["spec"]["token"] == KNOWN
        if not is_known:
            self.server.stranger_came.set()
            self.server.answer.wait(DEADLINE_S)
        status = {"authenticated": is_known, "user": {"username": "me"}, "audiences": [AUDIENCE]}
        body = json.dumps({**asked, "status": status}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.answer.set()
        server.shutdown()
        thread.join()


async def test_strangers_stand_in_a_line_of_their_own_that_has_an_end(
    api: ApiServer, tmp_path: Path
) -> None:
    now = [0.0]
    reviews = reviews_by(f"http://127.0.0.1:{api.server_port}", tmp_path)
    authenticator = KubernetesAuthenticator(reviews, AUDIENCE, lambda: now[0], outage_s=0.0)
    assert (await authenticator.authenticate(KNOWN)).name == "me"
    now[0] += TOKEN_TTL_S
    asking = [authenticator.authenticate(f"made up {n}") for n in range(MOST_STRANGERS + 9)]
    strangers = [asyncio.ensure_future(one) for one in asking]
    await asyncio.to_thread(api.stranger_came.wait, DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        # None of them has been answered.
        assert (await authenticator.authenticate(KNOWN)).name == "me"
    api.answer.set()
    answers = await asyncio.gather(*strangers, return_exceptions=True)
    kinds = [type(one) for one in answers]
    assert kinds.count(QuotaExceeded) == 9
    # On a busy machine some wait for longer than an API server may take.
    assert set(kinds) <= {QuotaExceeded, Unauthenticated, Unavailable}
    reviews.close()


async def test_answers_that_anybody_can_have_push_out_no_others() -> None:
    answers: Answers[int, str] = Answers(
        lambda _: 10.0, lambda: 0.0, size=2, cheap=lambda answer: answer == "no"
    )
    asked = []

    async def look(key: int, answer: str) -> str:
        async def ask() -> str:
            asked.append(key)
            return answer

        return await answers.get(key, ask)

    assert await look(0, "yes") == "yes"
    for key in range(1, 6):
        assert await look(key, "no") == "no"
    assert await look(0, "asked again") == "yes"
    assert await look(5, "asked again") == "no"
    # It was pushed out by others of its kind.
    assert await look(1, "yes") == "yes"
    assert asked == [0, 1, 2, 3, 4, 5, 1]
    assert [answers.has_been_good(key) for key in range(6)] == [True, True] + [False] * 4
