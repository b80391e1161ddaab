"""What a client says where nobody answers."""

import httpx
import pytest

from queue_operator.client.protocol import Call, unreachable

CALL = Call("GET", "/v1/jobs/a", is_repeatable=True)


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (httpx.RemoteProtocolError("Server disconnected"), "the URL begins with https"),
        (httpx.RemoteProtocolError("Server disconnected"), "give the one of REST (8080)"),
        (
            httpx.ConnectError("verify failed: unable to get local issuer certificate (_ssl.c:1)"),
            "give the file of the authority that signed it as ca_file (--ca-file)",
        ),
        (
            httpx.ConnectError("verify failed: self-signed certificate in certificate chain"),
            "give the file of the authority that signed it as ca_file (--ca-file)",
        ),
    ],
)
def test_it_says_what_to_do(failure: httpx.RequestError, remedy: str) -> None:
    assert remedy in str(unreachable(CALL, failure))


def test_a_name_that_does_not_fit_is_no_matter_of_authorities() -> None:
    failure = httpx.ConnectError("verify failed: Hostname mismatch, certificate is not valid for")
    assert "ca_file" not in str(unreachable(CALL, failure))
