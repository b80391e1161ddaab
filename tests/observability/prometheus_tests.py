"""Writes what promtool is to compute, and has it do so."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from tests.observability.world import (
    HEALTHY,
    INSTANCES,
    STEP_S,
    Fault,
    Figures,
    values,
)

from observability.alerts_operator import ALL, TEXT
from observability.rules import filled

FIRING: Final = 'count by (alertname) (ALERTS{alertstate="firing"})'


def with_target(series: str, target: str) -> str:
    """The series as it is stored: with the labels of its target."""
    name, _, labels = series.rstrip("}").partition("{")
    parts = [labels, f'job="{target}"', f'instance="{INSTANCES[target]}"']
    return f"{name}{{{','.join(part for part in parts if part)}}}"


def case(
    fault: Fault, *, fault_s: int = 120, healthy: Mapping[str, Figures] = HEALTHY
) -> dict[str, Any]:
    """A world that is healthy and then broken, without what is asked of it."""
    series: dict[str, str] = {}
    steps = range(0, fault.after_s + fault_s + STEP_S, STEP_S)
    for target, figures in healthy.items():
        gone = [target in fault.down and step >= fault.after_s for step in steps]
        series[with_target("up", target)] = " ".join("0" if one else "1" for one in gone)
        changed = fault.of(target)
        for name in {**figures, **changed}:
            course = values(figures.get(name), changed.get(name), fault.after_s, fault_s)
            series[with_target(name, target)] = _written(course, gone)
    return planted(series)


def planted(series: Mapping[str, str]) -> dict[str, Any]:
    """A case of these series, in promtool's notation."""
    return {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": name, "values": course} for name, course in series.items()],
    }


def _written(course: Iterable[float], gone: Iterable[bool]) -> str:
    """Prometheus marks series as stale when their target does not answer."""
    words = ["stale" if missing else f"{one:g}" for one, missing in zip(course, gone, strict=True)]
    return " ".join(words)


def asked(at_s: int, alerts: Iterable[str]) -> dict[str, Any]:
    """That exactly these alerts fire then, each once."""
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts]
    return {"expr": FIRING, "eval_time": f"{at_s}s", "exp_samples": samples}


def promtool(cases: list[dict[str, Any]], folder: Path, *, every_s: int = STEP_S) -> None:
    """Raises AssertionError with promtool's words if a case comes out otherwise."""
    (folder / "rules.yaml").write_text(filled(TEXT))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{every_s}s",
        # Without it the order is another one in each run, and alerts may see records one step late.
        "group_eval_order": [group.name for group in ALL],
        "tests": cases,
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
