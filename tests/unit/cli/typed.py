"""Commands as a user types them, against a server that gives the answers it was told to."""

import json
from typing import Any

from click.testing import CliRunner, Result
from tests.unit.client.scripted import Script

from queue_operator.cli.main import main

VARIABLES = ("URL", "TOKEN", "TOKEN_FILE", "CA_FILE", "CERT_FILE", "KEY_FILE", "NAMESPACE")
ALONE = {f"QUEUE_OPERATOR_{name}": None for name in VARIABLES}
NOBODY = "http://127.0.0.1:1"


def typed(
    *arguments: str,
    server: Script | None = None,
    stdin: str | bytes | None = None,
    **environment: str,
) -> Result:
    """What `queue-operator` does. Without a server nobody answers."""
    url = {"QUEUE_OPERATOR_URL": NOBODY if server is None else server.url}
    env: dict[str, str | None] = {**ALONE, **url, **environment}
    return CliRunner(env=env).invoke(
        main, arguments, input=stdin, catch_exceptions=False, prog_name="queue-operator"
    )


def document(*arguments: str, server: Script, **options: Any) -> Any:
    """What a command prints with `--output json`."""
    done = typed(*arguments, "--output", "json", server=server, **options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)
