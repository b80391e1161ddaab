"""Budgets that are burnt over days: a real Prometheus is given three days that have passed, and
evaluates the rules as they are shipped on them.
"""

import subprocess
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from tests.observability.promql import selectors
from tests.observability.world import OPERATOR
from tests.waiting import DEADLINE_S

from observability.alerts_operator import TEXT
from observability.recorded import PROMISES, SURVIVE
from observability.rules import filled
from observability.running import RunningPrometheus, configuration
from queue_operator.devcluster.processes import wait_until

HOUR, DAY = 3600, 86_400
EVERY_S: Final = 120
JOBS: Final = 200
"""Of each namespace, between two samples."""
ROUNDS_S: Final = 3.0
LENGTH_S: Final = 3 * DAY + HOUR
# How many of a thousand jobs die, and of a hundred start late, from so many seconds before now on:
# times how fast the budget of either promise is burnt.
COURSES: Final[Mapping[str, Mapping[int, float]]] = {
    "healthy": {LENGTH_S: 0.8},
    "three-days": {LENGTH_S: 1.5},
    "one-day": {LENGTH_S: 0.0, DAY + HOUR: 3.5},
    "for-an-hour": {LENGTH_S: 0.0, HOUR: 3.5},
    "until-last-night": {LENGTH_S: 3.5, 7 * HOUR: 0.0},
}
BURN: Final = {"three-days", "one-day"}
SLOW: Final = ("QueueOperatorJobsDieSlowly", "QueueOperatorJobsStartLateSlowly")
_EVERY: Final = (f"--eval-interval={EVERY_S}s",)
RECORDED: Final = {name for one in PROMISES for name in (one.rate(), one.total_rate())}
"""What the averages over days are read from."""


def samples(now_s: int) -> Iterator[str]:
    """What was scraped, in the format that promtool takes."""
    times = range(now_s - LENGTH_S, now_s, EVERY_S)
    yield "# TYPE up gauge"
    yield from (f'up{{job="{OPERATOR}",instance="o"}} 1 {at}' for at in times)
    for namespace, course in COURSES.items():
        labels = f'job="{OPERATOR}",instance="o",namespace="{namespace}",type="mail"'
        finished = f"queueoperator_jobs_finished_total{{{labels},state="
        wait = "queueoperator_job_wait_seconds"
        every, bad = 0.0, 0.0
        for at in times:
            begun = min(since for since in course if since >= now_s - at)
            every, bad = every + JOBS, bad + JOBS * course[begun]
            yield f'{finished}"completed"}} {every - bad / 1000} {at}'
            yield f'{finished}"dead_letter"}} {bad / 1000} {at}'
            yield f'{wait}_bucket{{{labels},le="60.0"}} {every - bad / 100} {at}'
            yield f"{wait}_count{{{labels}}} {every} {at}"
    yield "# EOF"


def promtool(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def averaged_from() -> str:
    """The rules, as they are shipped, whose results of days the others read."""
    rules: dict[str, Any] = yaml.safe_load(filled(TEXT))
    groups = [
        {**group, "rules": found}
        for group in rules["groups"]
        if (found := [rule for rule in group["rules"] if rule.get("record") in RECORDED])
    ]
    return yaml.safe_dump({"groups": groups})


def given_history(folder: Path, now_s: int) -> None:
    """Prometheus' data: what was scraped, and what the rules had recorded of it."""
    (folder / "history.om").write_text("\n".join(samples(now_s)) + "\n")
    promtool(folder, "openmetrics", "history.om", "data")
    with RunningPrometheus(folder, configuration([], [], "15s")) as prometheus:
        prometheus.await_ready()
        (folder / "averaged.yaml").write_text(averaged_from())
        from_to = (f"--start={now_s - LENGTH_S}", f"--end={now_s}")
        url = f"--url={prometheus.url}"
        promtool(folder, "rules", url, *from_to, "--output-dir=data", *_EVERY, "averaged.yaml")


def test_averages_over_hours_and_days_are_read_from_what_is_given() -> None:
    """Else the rules would look at what nobody recorded."""
    rules: dict[str, Any] = yaml.safe_load(filled(TEXT))
    for group in rules["groups"]:
        for rule in group["rules"]:
            for one in selectors(rule["expr"]):
                if one.window and one.window[-1] in "hd" and "burnrate" in rule.get("record", ""):
                    assert one.metric in RECORDED, rule


def test_slow_burns_are_told_and_nothing_else_is(tmp_path: Path) -> None:
    now_s = int(time.time())
    given_history(tmp_path, now_s)
    config = configuration([], [], "1s", ["rules.yaml"])
    shipped = RunningPrometheus(tmp_path, config, {"rules.yaml": filled(TEXT)})
    with shipped as prometheus:
        prometheus.await_ready()

        began = time.time()

        def evaluated() -> bool:
            """Each group several times: alerts see what was recorded before them."""
            groups = prometheus.api.get("rules")["groups"]
            return all(_evaluated_at(group) > began + ROUNDS_S for group in groups)

        wait_until(evaluated, "all rules to be evaluated", DEADLINE_S)
        firing = {
            (one["labels"]["alertname"], one["labels"]["namespace"])
            for one in prometheus.api.get("alerts")["alerts"]
            if one["state"] == "firing"
        }
        assert firing == {(name, namespace) for name in SLOW for namespace in BURN}
        assert _burnt(prometheus, "3d", "until-last-night") > 1
        assert _burnt(prometheus, "2h", "for-an-hour") > 1


def _evaluated_at(group: dict[str, Any]) -> float:
    return datetime.fromisoformat(group["lastEvaluation"]).timestamp()


def _burnt(prometheus: RunningPrometheus, window: str, namespace: str) -> float:
    asked = f'{SURVIVE.burn(window)}{{namespace="{namespace}"}}'
    [course] = prometheus.api.at(asked, time.time())
    return course.last
