"""Copies the package, makes one mistake in the copy, and runs the tests that must notice it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutants.listed import PACKAGE, ROOT, Mutant, tests_of

# What a run of the tests that judge mutants needs, and nothing else.
_COPIED: Final = ("operator", "examples", "tests")
_FILES: Final = ("pyproject.toml",)
_AT_ONCE: Final = 2
_PATIENCE_S: Final = 120.0
# The same for many tests at once, which none of them fails.
_BASELINE_PATIENCE_S: Final = 1800.0
# A mistake often shows in that something never comes.
_BOUNDS: Final = {"QUEUE_OPERATOR_TEST_BOUND_S": "6", "QUEUE_OPERATOR_TEST_DEADLINE_S": "20"}
# The tests tell a mistake in their usual forms; the long ones take hours for all of them.
_LONG_FORMS: Final = frozenset({"QUEUE_OPERATOR_TEST_FULL", "HYPOTHESIS_PROFILE"})
KILLED, SURVIVED, BROKEN = "killed", "survived", "broken"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`broken`: nothing was tested, or something failed that is no test's judgement."""

    mutant: Mutant
    fate: str
    detail: str = ""


@contextmanager
def _copy() -> Iterator[Path]:
    """A copy of its own for each run: with the compiled modules, which Python believes by the
    time and size of their source, two mistakes in one copy could be taken for each other.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for name in _COPIED:
            shutil.copytree(ROOT / name, copy / name)
        for name in _FILES:
            shutil.copy2(ROOT / name, copy / name)
        yield copy


def _run(
    copy: Path,
    tests: Sequence[str],
    store: str,
    *options: str,
    patience_s: float = _PATIENCE_S,
    bounds: Mapping[str, str] = _BOUNDS,
) -> dict[str, list[str]]:
    report = copy / "report.json"
    environment = {
        **{name: value for name, value in os.environ.items() if name not in _LONG_FORMS},
        "PYTHONPATH": os.pathsep.join([str(copy / PACKAGE.parent), str(ROOT / "tools")]),
        "MUTANT_COPY": str(copy),
        "MUTANT_REPORT": str(report),
        # The server belongs to whoever runs the mutants.
        "QUEUE_OPERATOR_TEST_KEEP": "1",
        **bounds,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "mutants.witness", *(["-k", store] if store else []), *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, timeout=patience_s, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return {"passed": [], "failed": [], "broken": [f"no end after {patience_s:g} s"]}
    if not report.exists():
        return {"passed": [], "failed": [], "broken": [(done.stdout + done.stderr)[-500:]]}
    told: dict[str, list[str]] = json.loads(report.read_text("utf-8"))
    return told


def baseline(wanted: Sequence[Mutant]) -> list[str]:
    """What fails, or is not run at all, without any mistake."""
    found, wrong = tests_of(list(wanted)), []
    with _copy() as copy:
        for store in sorted({one.store for one in wanted}):
            tests = sorted({t for one in wanted if one.store == store for t in found[one.promise]})
            told = _run(copy, tests, store, patience_s=_BASELINE_PATIENCE_S, bounds={})
            ran = {name.partition("[")[0] for name in told["passed"]}
            ran |= {name.partition("::")[0] for name in ran}
            wrong += told["failed"] + told["broken"]
            wrong += [f"{test} did not run on {store}" for test in tests if test not in ran]
    return wrong


def judge(mutant: Mutant, tests: Sequence[str]) -> Verdict:
    """Runs one mutant, to the first test that fails."""
    with _copy() as copy:
        path = copy / PACKAGE / mutant.file
        path.write_text(path.read_text("utf-8").replace(mutant.find, mutant.replace), "utf-8")
        told = _run(copy, tests, mutant.store, "-x")
    if told["broken"] or not (told["failed"] or told["passed"]):
        return Verdict(mutant, BROKEN, " ".join(told["broken"]) or "nothing was run")
    return Verdict(mutant, KILLED if told["failed"] else SURVIVED, " ".join(told["failed"]))


def judge_all(
    wanted: Sequence[Mutant], on_verdict: Callable[[Verdict], object] = lambda _: None
) -> list[Verdict]:
    """Some at a time; `on_verdict` hears of each as it ends. In the order of the list."""
    found = tests_of(list(wanted))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        runs = {pool.submit(judge, one, found[one.promise]): one for one in wanted}
        verdicts = {}
        for run in as_completed(runs):
            verdicts[runs[run]] = run.result()
            on_verdict(run.result())
    return [verdicts[one] for one in wanted]
