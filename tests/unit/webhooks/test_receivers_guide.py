"""The receiver of the guide, as it is printed, in a process of its own."""

import base64
import json
import os
import re
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from datetime import UTC, datetime
from pathlib import Path

import pytest

from queue_operator.domain.callbacks import check_callback_url
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.reach import Reach
from queue_operator.webhooks.guard import Guard
from queue_operator.webhooks.posting import Poster
from queue_operator.webhooks.proxies import Proxies
from queue_operator.webhooks.signing import Secret, signed_headers

GUIDE = (Path(__file__).resolve().parents[3] / "docs/guides/receive-webhooks.md").read_text()
[PROGRAM] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
[ALLOW] = re.findall(r"  allow: (\[.*\])", GUIDE)
[REFUSAL] = re.findall(r"^callback_url (must not go inside: .*)$", GUIDE, re.MULTILINE)
[PRINTED] = re.findall(r"whsec_[A-Za-z0-9+/=]{20,}", GUIDE)
ROWS = re.findall(r"^\| (`https?://.*?) \| (.*?) \|$", GUIDE, re.MULTILINE)


def test_its_table_is_what_is_taken() -> None:
    assert len(ROWS) >= 6
    for urls, taken in ROWS:
        for url in re.findall(r"`(\S+?)`", urls):
            fault = None
            try:
                check_callback_url("callback_url", url, Reach.of([]))
            except InvalidArgument as error:
                fault = error.reason
            assert (fault is None) is (taken == "yes"), url


def test_what_it_prints_is_right() -> None:
    Secret.of(PRINTED)
    Reach.of(json.loads(ALLOW))
    assert Reach.of([]).url_fault("https://10.0.0.1/") == REFUSAL


@pytest.mark.parametrize("knows", ["the secret", "another secret", "none"])
async def test_its_receiver_takes_what_is_signed_once(tmp_path: Path, knows: str) -> None:
    ours, others = ("whsec_" + base64.b64encode(one * 32).decode() for one in (b"a", b"b"))
    program = tmp_path / "receiver.py"
    program.write_text(PROGRAM)
    process = await create_subprocess_exec(
        sys.executable,
        str(program),
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "WEBHOOK_SECRET": ours, "PORT": "0"},
    )
    try:
        assert process.stdout is not None
        port = int((await process.stdout.readline()).split()[-1])
        secrets = {"the secret": [others, ours], "another secret": [others], "none": []}[knows]
        body = json.dumps({"id": "m1", "type": "job.finished", "data": {"job_id": "j1"}}).encode()
        guard = Guard(Reach.of(["127.0.0.1"], ports=[], http=True))
        async with Poster(guard, total_s=60, answer_bytes=9, proxies=Proxies.none()) as poster:
            headers = signed_headers(
                "m1", datetime.now(UTC), body, [Secret.of(one) for one in secrets]
            )
            url = f"http://127.0.0.1:{port}/"
            answers = [(await poster.post(url, headers, body)).status for _ in range(2)]
    finally:
        process.kill()
        said, _ = await process.communicate()
    if knows == "the secret":
        assert (answers, said) == ([204, 204], b"job.finished j1\n")
    else:
        assert (answers, said) == ([401, 401], b"")
