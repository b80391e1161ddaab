"""What cannot be meant is refused with exit code 2, before anything is sent."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.unit.cli.typed import typed
from tests.unit.worker.test_base_install import run

from queue_operator.cli.command import ExampleCommand
from queue_operator.cli.main import main
from queue_operator.queue.explaining import WaitReason

ROOT = Path(__file__).parents[3]
JOBS = (
    *("submit", "get", "list", "stats", "cancel", "retry", "failures", "why", "top"),
    *("pause", "suspend", "resume", "delete", "logs", "wait", "watch"),
)
WITH_ID = ("get", "why", "logs", "failures", "cancel", "suspend", "retry", "delete")


@pytest.mark.parametrize("name", JOBS)
def test_each_command_explains_itself_with_examples(name: str) -> None:
    done = typed(name, "--help")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: queue-operator {name} [OPTIONS]")
    assert f"\nExamples:\n  queue-operator {name}" in done.stdout
    for option in ("--url", "--token", "--token-file", "--namespace", "-o, --output"):
        assert option in done.stdout


@pytest.mark.parametrize("name", JOBS)
def test_every_option_is_explained_or_a_choice(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for option in command.params:
        if isinstance(option, click.Option):
            known = isinstance(option.type, click.Choice | click.IntRange)
            assert option.help or known, option.name


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["submit"], "give TYPE, or --file"),
        (["submit", "t"], "give PAYLOAD: a value, @FILE, - for standard input, or null"),
        (["submit", "t", "--raw"], "'' for no bytes"),
        (["submit", "t", "{"], "is no JSON"),
        (["submit", "t", "{not: quoted}"], "quote it for the shell"),
        (["submit", "t", "@/no/such/file"], "/no/such/file: No such file"),
        (["submit", "t", "1", "--delay", "soon"], "is no duration"),
        (["submit", "t", "1", "--at", "2030-01-01T00:00:00"], "has no zone"),
        (["submit", "t", "1", "--priority", "URGENT"], "--priority"),
        (["submit", "t", "1", "--max-attempts", "0"], "--max-attempts"),
        (["submit", "t", "1", "--run-id", "a"], "--run-id is for --file"),
        (["submit", "t", "1", "--tag", "a=1", "--tag", "a=2"], "two values"),
        (["submit", "--file", "/no/such/file"], "does not exist"),
        (["submit", "t", "1", "--file", __file__], "payload: for one job only"),
        (["submit", "--file", __file__, "--wait"], "wait: for one job only"),
        (["get"], "Missing argument 'JOB_ID'"),
        *(([name, ""], "a job's id must not be empty") for name in WITH_ID),
        (["get", "x", "--wait", "--watch"], "not both"),
        (["get", "x", "--timeout", "5s"], "--timeout is for"),
        (["list", "--state", "LOST"], "--state"),
        (["list", "--limit", "0"], "--limit"),
        (["list", "--order", "SIZE"], "--order"),
        (["failures", "x", "--type", "t"], "JOB_ID or filters"),
        (["failures", "--state", "RUNNING"], "--state"),
        (["cancel"], "give ids, or filters, or --all"),
        (["cancel", "x", "--type", "t"], "ids or filters, not both"),
        (["cancel", "x", "--all"], "ids or filters, not both"),
        (["cancel", "-"], "holds no ids"),
        (["cancel", "x", ""], "a job's id must not be empty"),
        (["retry"], "give ids, or filters, or --all"),
        (["delete"], "give ids, or filters, or --all"),
        (["pause"], "give a TYPE, or --yes"),
        (["pause", "t", "--list"], "--list alone"),
        (["resume", "t", "--all"], "not both"),
        (["resume", "t", "--job", "j"], "give --job alone"),
        (["suspend"], "Missing argument 'JOB_ID...'"),
        (["stats", "--by", "SIZE"], "--by"),
        (["top", "--count", "0"], "--count"),
    ],
)
def test_what_cannot_be_meant(arguments: list[str], fault: str) -> None:
    done = typed(*arguments)
    assert done.exit_code == 2, done.output
    assert fault in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [["retry", "-ojson"], ["retry", "--tag", "a=b", "--output", "json"], ["get", "--output=json"]],
)
def test_programs_are_told_in_json(arguments: list[str]) -> None:
    done = typed(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    told = json.loads(done.stderr)["error"]
    assert (told["code"], bool(told["message"])) == ("USAGE", True)


def test_nobody_is_led_to_change_everything() -> None:
    done = typed("retry", "--tag", "a=b")
    assert done.exit_code == 2
    assert "No such option '--tag'" in done.stderr
    assert "--all" not in done.stderr


GUIDES = (
    "docs/guides/submit-jobs.md",
    "docs/guides/on-call.md",
    "docs/guides/page.md",
    "docs/runbooks/README.md",
    "examples/04-observability/README.md",
)
_TYPED = re.compile(r"^\$ (queue-operator .*)$|`(queue-operator [^`]*)`", re.MULTILINE)
_SHELL = ("|", "&&", "<", ">")


def typed_in_guides() -> list[str]:
    texts = [(ROOT / name).read_text() for name in GUIDES]
    found = [one or other for text in texts for one, other in _TYPED.findall(text)]
    return [line for line in found if line != "queue-operator submit --file"]


def examples() -> list[str]:
    commands = [main.get_command(click.Context(main), name) for name in JOBS]
    return [line for one in commands if isinstance(one, ExampleCommand) for line in one.examples]


@pytest.mark.parametrize("line", sorted({*typed_in_guides(), *examples()}))
def test_what_guides_and_help_say_can_be_typed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    for part in re.split(r"(?<=\s)\|(?=\s)", line):
        words = shlex.split(part)
        end = next((at for at, word in enumerate(words) if word in _SHELL), len(words))
        if words[0] == "queue-operator":
            name, *arguments = words[1:end]
            command = main.get_command(click.Context(main), name)
            assert command is not None, name
            command.make_context(name, arguments)


@pytest.mark.parametrize("reason", WaitReason)
def test_on_call_tells_what_to_do_about_each_reason(reason: WaitReason) -> None:
    table = (ROOT / "docs" / "guides" / "on-call.md").read_text().partition("| `reason` |")[2]
    told = [row.split("|")[1] for row in table.partition("\n\n")[0].splitlines()[2:]]
    assert any(f"`{reason}`" in names for names in told)


PROGRAM = """
from queue_operator.cli.main import main
main(["pause", "--list", "--url", "http://127.0.0.1:1"])
"""


def test_the_client_extra_is_enough(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM, ["client"])
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr, done.stderr


def test_without_it_the_extra_is_named(tmp_path: Path) -> None:
    blocked = "import sys\nsys.modules['httpx'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "install 'queue-operator[client]'" in done.stderr
