"""Signatures, read by the library as receivers read them."""

import base64
from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from queue_operator.webhooks.signing import Secret, signed_headers

_OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
_NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
_BODY = '{"type": "job.finished", "text": "\u00fc"}'.encode()


def _now() -> datetime:
    return datetime.now(UTC)


def test_a_receiver_verifies_a_message_with_any_secret_that_signs() -> None:
    headers = signed_headers("msg_1", _now(), _BODY, [Secret.of(_NEW), Secret.of(_OLD)])
    for secret in (_OLD, _NEW):
        assert Webhook(secret).verify(_BODY, headers)["type"] == "job.finished"


def test_the_newest_signs_first() -> None:
    both = signed_headers("msg_1", _now(), _BODY, [Secret.of(_NEW), Secret.of(_OLD)])
    first, second = both["webhook-signature"].split(" ")
    for signature, secret, other in ((first, _NEW, _OLD), (second, _OLD, _NEW)):
        headers = {**both, "webhook-signature": signature}
        Webhook(secret).verify(_BODY, headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(other).verify(_BODY, headers)


@pytest.mark.parametrize("changed", ["webhook-id", "webhook-timestamp", "body"])
def test_nothing_of_a_message_can_be_changed(changed: str) -> None:
    at = _now()
    headers = signed_headers("msg_1", at, _BODY, [Secret.of(_NEW)])
    body = _BODY + b" " if changed == "body" else _BODY
    others = {"webhook-id": "msg_2", "webhook-timestamp": str(int(at.timestamp()) - 1)}
    headers |= {name: text for name, text in others.items() if name == changed}
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        Webhook(_NEW).verify(body, headers)


def test_a_try_of_long_ago_is_not_verified() -> None:
    headers = signed_headers("msg_1", _now() - timedelta(minutes=6), _BODY, [Secret.of(_NEW)])
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(_NEW).verify(_BODY, headers)


def test_the_zone_of_the_clock_does_not_matter() -> None:
    at = _now()
    elsewhere = at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    secrets = [Secret.of(_NEW)]
    assert signed_headers("m", at, _BODY, secrets) == signed_headers("m", elsewhere, _BODY, secrets)


def test_without_a_secret_nothing_is_signed() -> None:
    at = _now()
    assert signed_headers("msg_1", at, _BODY, []) == {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
    }


def test_the_example_of_the_specification() -> None:
    secret = Secret.of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    at = datetime.fromtimestamp(1614265330, UTC)
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}', [secret])
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        base64.b64encode(b"n" * 32).decode(),
        "whsec_" + base64.b64encode(b"n" * 23).decode(),
        "whsec_" + base64.b64encode(b"n" * 65).decode(),
        "whsec_not base64 at all, and long enough",
        "whsec_\u00fc" + base64.b64encode(b"n" * 32).decode(),
        "WHSEC_" + base64.b64encode(b"n" * 32).decode(),
    ],
)
def test_what_is_no_secret_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="whsec_") as raised:
        Secret.of(text)
    assert "bm5u" not in str(raised.value)
    assert "not base64" not in str(raised.value)


def test_a_secret_shows_itself_to_nobody() -> None:
    assert "bm5u" not in f"{Secret.of(_NEW)} {Secret.of(_NEW)!r} {[Secret.of(_NEW)]}"
