"""`python stranger.py`: a client in a process of its own, so that what it does holds up no thread
of the server's. For each line, a JSON object with host, port, method, path, headers and the name
of a file with the body, it says the status of the answer, once it has read all of it.
"""

import http.client
import json
import sys
from pathlib import Path
from typing import Any, Final

DEADLINE_S: Final = 250.0
"""However busy the machine is."""
_CUT_OFF: Final = 413
"""What is far too large is not even read to its end."""


def answered(asked: dict[str, Any]) -> int:
    body = Path(asked["body"]).read_bytes()
    connection = http.client.HTTPConnection(asked["host"], asked["port"], timeout=DEADLINE_S)
    try:
        connection.request(asked["method"], asked["path"], body or None, asked["headers"])
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (ConnectionError, http.client.HTTPException):
        return _CUT_OFF
    finally:
        connection.close()


if __name__ == "__main__":
    for line in sys.stdin:
        print(answered(json.loads(line)), flush=True)
