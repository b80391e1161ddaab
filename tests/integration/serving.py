"""`queue-operator serve` beside the tests, as the process that it is in production."""

import os
import random
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from queue_operator.devcluster.processes import ProcessIdentity, all_processes, wait_until

_RANDOM = random.SystemRandom()
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class Server:
    """One running `queue-operator serve`, its log and its probes."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.health_port = free_port()
        ports = {name: "0" for name in ("REST", "GRPC", "METRICS")}
        ports["HEALTH"] = str(self.health_port)
        settings = {
            "AUTH__MODE": "none",
            "CONTROLLER__ENABLED": "false",
            "WEBHOOKS__ENABLED": "false",
            **{f"{name}__PORT": port for name, port in ports.items()},
            **environment,
        }
        self._log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "queue_operator.cli.main", "serve"],
                env=os.environ
                | {f"QUEUE_OPERATOR_{key}": value for key, value in settings.items()},
                stderr=stream,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def probe(self, path: str) -> tuple[int, str]:
        """Status and body; 0 as long as nobody listens."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.health_port}/{path}", timeout=5
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def await_ready(self, part: str = "readyz") -> None:
        self.until(lambda: self.probe(part)[0] == 200, part)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            assert self.process.poll() is None, self.log
            return condition()

        wait_until(met, f"{what}; see {self._log}", START_TIMEOUT_S)

    def end(self) -> int:
        """Sends SIGTERM; the exit code, which must come in time."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def children(self) -> list[ProcessIdentity]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        pids = {int(word) for word in listed.split()}
        return [identity for identity in all_processes() if identity.pid in pids]

    def controller(self) -> ProcessIdentity:
        """The child that kopf runs in; the other one is Python's own tracker of semaphores."""
        (found,) = (child for child in self.children() if "spawn_main" in command_line(child.pid))
        return found


def free_port() -> int:
    """Nobody listens there, on any address. It is none of those that the kernel gives to whoever
    asks for any: between this look and its use others do.
    """
    while True:
        port = _RANDOM.randrange(10_240, 32_768)
        with (
            suppress(OSError),
            socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True),
        ):
            return port


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
