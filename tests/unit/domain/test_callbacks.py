"""Which URLs may be called when a job has ended."""

import pytest

from queue_operator.domain.callbacks import check_callback_url
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.limits import MAX_URL_CHARACTERS

_LONGEST = "https://a/" + "x" * (MAX_URL_CHARACTERS - len("https://a/"))


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "https://example.com:65535/path?query=%20&b=[1]",
        "HTTPS://EXAMPLE.COM/",
        "http://127.0.0.1:1/",
        "http://[::1]:8080/done",
        _LONGEST,
    ],
)
def test_a_url_that_can_be_called(url: str) -> None:
    check_callback_url("callback_url", url)


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        b"http://a",
        "",
        "a",
        "/path",
        "//host/path",
        "ftp://a",
        "javascript:alert(1)",
        "http:",
        "http://",
        "http:///path",
        "http://:80/",
        "http://a:0",
        "http://a:65536",
        "http://a:x",
        "http://[::1",
        "http://user@a",
        "http://user:secret@a",
        "http://a/#part",
        "http://a b",
        " http://a",
        "http://a\n",
        "http://a/\x00",
        "http://\u00fc.example",
        _LONGEST + "x",
    ],
)
def test_a_url_that_is_refused_by_name(url: object) -> None:
    with pytest.raises(InvalidArgument) as raised:
        check_callback_url("jobs[1].callback_url", url)
    assert raised.value.field == "jobs[1].callback_url"
