"""What a chaos run starts ends with it, even if it is killed."""

import sys
from pathlib import Path

from tests.chaos.processes import ROOT
from tests.chaos.troupe import new_server
from tests.programs import kill, line, started

from queue_operator.devcluster.processes import ProcessIdentity, wait_until

PATIENCE_S = 20.0
# Starts what the first word says, tells its process id, and waits.
RUN = """
import sys
from pathlib import Path
from tests.chaos.processes import Guard, Program
folder = Path(sys.argv[2])
if sys.argv[1] == "worker":
    program = Program("worker", "worker", folder, {"SERVER": "localhost:1", "HEALTH_PORT": "0"})
    program.start()
    print(program.process.pid, flush=True)
else:
    guard = Guard(folder)
    print(guard._process.pid, flush=True)
sys.stdin.read()
"""


async def killed(what: str, folder: Path) -> ProcessIdentity:
    """What a run had started when it was killed."""
    async with started(sys.executable, "-c", RUN, what, folder, PYTHONPATH=str(ROOT)) as run:
        found = ProcessIdentity.of(int(await line(run)))
        await kill(run)
    assert found is not None
    return found


async def test_processes_end_with_the_run(tmp_path: Path) -> None:
    worker = await killed("worker", tmp_path)
    wait_until(lambda: not worker.alive(), "the end of the worker", PATIENCE_S)


async def test_the_server_ends_with_the_run() -> None:
    server = new_server()
    server.start()
    guard = await killed("guard", server.folder)
    wait_until(lambda: not guard.alive(), "the end of the guard", PATIENCE_S)
    assert not server.running()
    assert not server.folder.exists()
