"""The scenarios: which runs each is made of, and what it reports."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import cpu_count
from statistics import median_low
from typing import Final

from bench.board import Board
from bench.contenders import (
    OURS,
    Contender,
    Settings,
    bare_copy,
    empty_endpoint,
    end_to_end,
    idle_sessions,
    long_history,
    many_jobs,
    many_lanes,
    many_names,
    pinned_hour,
    rest_reads,
    rest_submit,
    scrape,
    webhooks,
    wide_row,
)
from bench.hours import PINNED, UNPINNED
from bench.result import Result, Setting
from bench.runner import Run, System, run_once
from bench.server import SETTINGS, Server

REST_CALLERS: Final = 16
REST_BATCH: Final = 1_000
LEAST_RIVER: Final = 10_000
"""Jobs per second that River burns down on any idle machine of two cores. With less, something
else was using the machine.
"""


HEADLINES: Final = ("status_p99_ms", "search_worst_p99_ms", "rest_stats_max_ms")
HOUR_HEADLINES: Final = ("claim_p99_ms", "heartbeat_p99_ms", "sweep_p99_ms", "unavailable")
NAMES_HEADLINES: Final = ("of_ordinary", "claim_p99_ms", "lanes_left")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of everything. `lane_jobs` is the backlog of many_lanes and `stats_jobs` what
    is stored in stats. `whole_jobs` is the backlog of end_to_end, `pickup_rate` the submissions
    per second of pickup, and `sessions` the workers of idle_sessions. scrape stores
    `scraped_jobs` and connects `scraped_sessions` workers. Of `webhook_jobs` a receiver is told in
    each of the `webhook_rounds`. `rest_singles` and
    `rest_jobs` are submitted over REST, alone and in batches; `search_jobs` is what is stored in
    rest_search, and single jobs are looked at for `status_seconds`.

    pinned_hour takes `hour_seconds`, of which `burn_seconds` fill the tables, with `burn_jobs` jobs
    instead if that is not 0; its jobs are delayed by up to `hour_delay_s`, and `hour_held` run all
    the time. The same unpinned takes `free_seconds` at most, and has no `burn_jobs` then.
    many_names uses `names` lanes; jobs wait in `names_waiting` of them while it measures for
    `names_seconds`, after rounds of `names_round` jobs. `history_jobs` have ended in
    long_history.
    """

    jobs: int = 200_000
    trial_jobs: int = 40_000
    trial_seconds: float = 4.0
    default_jobs: int = 10_000
    payload: int = 256
    submit_batch: int = 5_000
    seconds: float = 60.0
    depth: int = 20_000
    repeats: int = 3
    lane_jobs: int = 1_000_000
    lane_seconds: float = 20.0
    stats_jobs: int = 5_000_000
    whole_jobs: int = 100_000
    pickup_rate: int = 800
    pickup_seconds: float = 30.0
    sessions: int = 1_000
    idle_seconds: float = 20.0
    scraped_jobs: int = 1_000_000
    scraped_sessions: int = 500
    webhook_jobs: int = 20_000
    webhook_rounds: int = 9
    rest_singles: int = 20_000
    rest_jobs: int = 1_000_000
    search_jobs: int = 1_000_000
    status_seconds: float = 20.0
    rest_calls: int = 20
    hour_seconds: float = 300.0
    hour_delay_s: float = 30.0
    hour_rate: int = 800
    hour_held: int = 1_000
    burn_seconds: float = 100.0
    burn_jobs: int = 0
    free_seconds: float = 300.0
    names: int = 300_000
    names_waiting: int = 100_000
    names_round: int = 20_000
    names_seconds: float = 20.0
    history_jobs: int = 1_000_000
    tries_settings: bool = True
    batch: int | None = None


QUICK: Final = Scale(
    jobs=30_000,
    default_jobs=3_000,
    seconds=5.0,
    repeats=1,
    lane_jobs=50_000,
    lane_seconds=3.0,
    stats_jobs=200_000,
    whole_jobs=20_000,
    pickup_seconds=5.0,
    sessions=100,
    idle_seconds=5.0,
    scraped_jobs=100_000,
    scraped_sessions=50,
    webhook_jobs=2_000,
    webhook_rounds=1,
    rest_singles=5_000,
    rest_jobs=200_000,
    search_jobs=100_000,
    status_seconds=5.0,
    rest_calls=10,
    hour_seconds=20.0,
    hour_delay_s=2.0,
    burn_seconds=8.0,
    names=10_000,
    names_waiting=5_000,
    names_round=5_000,
    names_seconds=3.0,
    history_jobs=50_000,
    tries_settings=False,
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One system in one scenario."""

    name: str
    system: System
    settings: Settings
    described: Settings = field(default_factory=dict)


class Measuring:
    """One run of the benchmark: the server, who takes part, what came out."""

    def __init__(
        self,
        server: Server,
        scale: Scale,
        product: Contender,
        peers: Sequence[Contender],
        board: Board,
    ) -> None:
        self._server = server
        self._scale = scale
        self._product = product
        self._peers = peers
        self._board = board
        self._best: dict[tuple[str, str, str], Settings] = {}
        self.results: list[Result] = []
        self.problems: list[str] = []
        self.wrong_ledgers: list[str] = []

    # Scenarios

    def submit(self) -> None:
        """The rate of batches of submissions, beside bare COPY."""
        contenders = [bare_copy(), self._product, *self._peers]
        entries = [self._entry(one, "submit") for one in contenders]
        self._in_turn("submit", "submit", entries, self._scale.repeats)

    def burn_down(self) -> None:
        """Jobs that were submitted before are claimed and completed, as fast as it goes."""
        entries = [self._entry(one, "burn_down") for one in (self._product, *self._peers)]
        results = self._in_turn("burn_down", "burn_down", entries, self._scale.repeats)
        for result in results:
            if result.system == "river" and result.metrics["jobs_per_s"] < LEAST_RIVER:
                self.problems.append(
                    f"River burnt down {result.metrics['jobs_per_s']:,.0f} jobs/s, which should "
                    f"be {LEAST_RIVER:,} at least: something else was using this machine"
                )
        self._in_turn("burn_down", "burn_down", self._defaults(jobs=self._scale.default_jobs), 1)

    def continuous(self) -> None:
        """From empty tables, submission, claim and completion at once."""
        self._continuous("continuous", self._flows(), pinned=False)
        # A default is slow enough to show in little time, and could not drain much.
        short = min(self._scale.seconds, 10.0)
        self._continuous("continuous", self._defaults(seconds=short, depth=2_000), pinned=False)

    def continuous_pinned(self) -> None:
        """The same while a transaction keeps every dead row from being removed."""
        self._continuous("continuous_pinned", self._flows(), pinned=True)

    def many_lanes(self) -> None:
        """Many claimers with different demands on a large backlog of many tag sets."""
        settings: Settings = {
            "jobs": self._scale.lane_jobs,
            "seconds": self._scale.lane_seconds,
            "claimers": 12,
            "batch": 100,
        }
        self._in_turn("many_lanes", "many_lanes", [_Entry(OURS, many_lanes(), settings)], 1)

    def stats(self) -> None:
        """Statistics and single jobs, when many are stored."""
        # Small payloads: they are not what a count or a look-up by key has to read.
        settings: Settings = {"jobs": self._scale.stats_jobs, "payload": 64}
        run = self._run("stats", "stats", _Entry(OURS, many_jobs(), settings))
        metrics = {**run.extra, "table_bytes": run.after.table_bytes, **run.ledger}
        metrics["ledger_ok"] = int(run.ledger_is_right)
        self._add([Result("stats", OURS, self._settings("stats", settings), metrics)])

    def designs(self) -> None:
        """Our tables beside one wide row per job that carries the same."""
        fixed: Settings = {"batch": self._scale.batch or 500, "pipelines": 1, "submitters": 2}
        # Long enough for dead rows to show, and short enough that all of it takes four minutes.
        fixed = {**fixed, "seconds": min(self._scale.seconds, 20.0)}
        entries = [
            _Entry(one.name, one.system, {**one.fixed, **fixed})
            for one in (self._product, wide_row())
        ]
        self._in_turn("designs_submit", "submit", entries, self._scale.repeats)
        self._in_turn("designs_burn_down", "burn_down", entries, self._scale.repeats)
        self._continuous("designs_continuous", entries, pinned=False)
        self._continuous("designs_continuous_pinned", entries, pinned=True)

    def end_to_end(self) -> None:
        """Jobs that were submitted before are worked by two workers of the SDK, over gRPC; the
        peers burn down as many.
        """
        little: Settings = {"jobs": self._scale.whole_jobs}
        entries = [self._entry(one, "burn_down", "whole") for one in (end_to_end(), *self._peers)]
        entries = [replace(one, settings={**one.settings, **little}) for one in entries]
        self._in_turn("end_to_end", "burn_down", entries, self._scale.repeats)

    def pickup(self) -> None:
        """Single jobs at a steady rate: how long until a handler begins."""
        settings: Settings = {
            "rate": self._scale.pickup_rate,
            "seconds": self._scale.pickup_seconds,
            "capacity": 100,
        }
        self._in_turn("pickup", "pickup", [_Entry(OURS, end_to_end().system, settings)], 1)

    def idle_sessions(self) -> None:
        """Many workers that have nothing to do."""
        settings: Settings = {
            "sessions": self._scale.sessions,
            "seconds": self._scale.idle_seconds,
        }
        run = self._run("idle_sessions", "idle", _Entry(OURS, idle_sessions(), settings))
        self._add([Result("idle_sessions", OURS, self._settings("idle", settings), {**run.extra})])

    def scrape(self) -> None:
        """The figures of an operator, when many jobs are stored and many workers connected."""
        settings: Settings = {
            "jobs": self._scale.scraped_jobs,
            "payload": 64,
            "sessions": self._scale.scraped_sessions,
        }
        run = self._run("scrape", "scrape", _Entry(OURS, scrape(), settings))
        described = self._settings("scrape", settings)
        self._add([Result("scrape", OURS, described, {**run.extra})])

    def webhooks(self) -> None:
        """Lives of jobs of whose end a receiver is told, and of others, in turn."""
        settings: Settings = {
            "jobs": self._scale.webhook_jobs,
            "payload": self._scale.payload,
            "batch": min(500, self._scale.webhook_jobs),
            "rounds": self._scale.webhook_rounds,
        }
        run = self._run("webhooks", "webhooks", _Entry(OURS, webhooks(), settings))
        described = self._settings("webhooks", settings)
        self._add([Result("webhooks", OURS, described, {**run.extra})])

    def rest_submit(self) -> None:
        """Single submissions over REST, beside what the framework can answer at most."""
        little: Settings = {
            "jobs": self._scale.rest_singles,
            "submit_batch": 1,
            "callers": REST_CALLERS,
        }
        entries = [
            _Entry(one.name, one.system, {**one.fixed, **little})
            for one in (empty_endpoint(), rest_submit())
        ]
        self._in_turn("rest_submit", "submit", entries, self._scale.repeats)

    def rest_batches(self) -> None:
        """Batches over REST, beside bare COPY of as many at a time."""
        much: Settings = {"jobs": self._scale.rest_jobs, "submit_batch": REST_BATCH}
        ours, copying = rest_submit(), self._entry(bare_copy(), "submit")
        entries = [
            replace(copying, settings={**copying.settings, **much}),
            _Entry(OURS, ours.system, {**ours.fixed, **much, "callers": REST_CALLERS}),
        ]
        self._in_turn("rest_batches", "submit", entries, 1)

    def rest_search(self) -> None:
        """Single jobs, pages of jobs and statistics over REST, when many are stored."""
        self._rest_reads("rest_search", "status search stats", self._scale.search_jobs)

    def rest_stats(self) -> None:
        """Statistics over REST, when very many are stored."""
        self._rest_reads("rest_stats", "stats", self._scale.stats_jobs)

    def pinned_hour(self) -> None:
        """An hour's traffic while no dead row can be removed, and the same while they can be."""
        settings: Settings = {
            "seconds": self._scale.hour_seconds,
            "window_s": min(20.0, self._scale.hour_seconds / 10),
            "burn_s": self._scale.burn_seconds,
            "burn_jobs": self._scale.burn_jobs,
            "rate": self._scale.hour_rate,
            "held": self._scale.hour_held,
            "delay_s": self._scale.hour_delay_s,
        }
        of_free: Settings = settings
        if self._scale.free_seconds < self._scale.hour_seconds:
            of_free = {**settings, "seconds": self._scale.free_seconds, "burn_jobs": 0}
        [free] = self._in_turn(UNPINNED, "hour", [_Entry(OURS, pinned_hour(), of_free)], 1)
        entries = [_Entry(OURS, pinned_hour(), settings)]
        [pinned] = self._in_turn(PINNED, "hour", entries, 1, pinned=True)
        slower = pinned.metrics["claim_p99_ms"] / free.metrics["claim_p99_ms"]
        pinned.metrics["claim_p99_of_unpinned"] = slower

    def many_names(self) -> None:
        """A tag set of its own for each job."""
        settings: Settings = {
            "names": self._scale.names,
            "waiting": self._scale.names_waiting,
            "round": self._scale.names_round,
            "seconds": self._scale.names_seconds,
        }
        self._in_turn("many_names", "names", [_Entry(OURS, many_names(), settings)], 1)

    def long_history(self) -> None:
        """Few jobs are looked for among many that have ended."""
        settings: Settings = {"jobs": self._scale.history_jobs, "payload": 64}
        run = self._run("long_history", "history", _Entry(OURS, long_history(), settings))
        metrics = {**run.extra, "table_bytes": run.after.table_bytes, **run.ledger}
        metrics["ledger_ok"] = int(run.ledger_is_right)
        described = self._settings("history", settings)
        self._add([Result("long_history", OURS, described, metrics)])

    def _rest_reads(self, scenario: str, parts: str, jobs: int) -> None:
        settings: Settings = {
            "jobs": jobs,
            "payload": 64,
            "parts": parts,
            "seconds": self._scale.status_seconds,
            "calls": self._scale.rest_calls,
        }
        run = self._run(scenario, "reads", _Entry(OURS, rest_reads(), settings))
        metrics = {**run.extra, "table_bytes": run.after.table_bytes, **run.ledger}
        metrics["ledger_ok"] = int(run.ledger_is_right)
        self._add([Result(scenario, OURS, self._settings("reads", settings), metrics)])

    # Their parts

    def _flows(self) -> list[_Entry]:
        return [self._entry(one, "continuous") for one in (self._product, *self._peers)]

    def _entry(self, contender: Contender, mode: str, part: str = "storage") -> _Entry:
        settings = self._best_settings(contender, mode, part)
        return _Entry(contender.name, contender.system, settings, contender.described)

    def _defaults(self, **scale: Setting) -> list[_Entry]:
        """The peers as they come."""
        return [
            _Entry(
                f"{peer.name} (default)",
                peer.system,
                {"submitters": 1, **peer.default, **scale},
                peer.described,
            )
            for peer in self._peers
            if peer.default is not None
        ]

    def _best_settings(self, contender: Contender, mode: str, part: str) -> Settings:
        """Tried shortly once, the first time they are needed. What is best for our storage is
        another question than what is best for the whole; for a peer it is the same.
        """
        key = (contender.name, mode, part if contender.name == OURS else "")
        if key not in self._best:
            loading: Settings = {} if mode == "continuous" else {"submitters": 2}
            fixed = {**loading, **contender.fixed}
            trials = [{**fixed, **trial} for trial in contender.trials[mode]]
            self._best[key] = self._try(contender, mode, trials)
        return self._best[key]

    def _try(self, contender: Contender, mode: str, trials: Sequence[Settings]) -> Settings:
        if len(trials) == 1 or not self._scale.tries_settings:
            return trials[0]
        rates: list[float] = []
        little: Settings = {"jobs": self._scale.trial_jobs}
        if mode == "continuous":
            little = {"seconds": self._scale.trial_seconds}
        for settings in trials:
            entry = _Entry(contender.name, contender.system, {**settings, **little})
            rates.append(_jobs_per_s(self._run(f"{mode}, trial", mode, entry), mode))
        return trials[rates.index(max(rates))]

    def _continuous(self, scenario: str, entries: Sequence[_Entry], *, pinned: bool) -> None:
        results = self._in_turn(scenario, "continuous", entries, 1, pinned=pinned)
        if pinned:
            for result in results:
                self._add_share_of_unpinned(result)

    def _add_share_of_unpinned(self, pinned: Result) -> None:
        for result in self.results:
            if (result.scenario + "_pinned", result.system) == (pinned.scenario, pinned.system):
                share = pinned.metrics["jobs_per_s"] / result.metrics["jobs_per_s"]
                pinned.metrics["share_of_unpinned"] = share

    def _in_turn(
        self,
        scenario: str,
        mode: str,
        entries: Sequence[_Entry],
        repeats: int,
        *,
        pinned: bool = False,
    ) -> list[Result]:
        """Each entry in turn, all of it `repeats` times; the median run is reported."""
        runs: dict[str, list[Run]] = defaultdict(list)
        for _ in range(repeats):
            for entry in entries:
                runs[entry.name].append(self._run(scenario, mode, entry, pinned=pinned))
        results = [
            Result(
                scenario,
                entry.name,
                {**self._settings(mode, entry.settings), **entry.described},
                _summary(runs[entry.name], mode),
            )
            for entry in entries
        ]
        self._add(results)
        return results

    def _add(self, results: Sequence[Result]) -> None:
        self.results += results

    def _run(self, scenario: str, mode: str, entry: _Entry, *, pinned: bool = False) -> Run:
        spec = {**self._common(mode), **entry.settings, "mode": mode}
        jobs = int(spec["jobs"]) if mode in {"submit", "burn_down"} else 0
        seconds = (
            0.0
            if jobs or mode in {"reads", "names", "scrape", "webhooks"}
            else float(spec.get("seconds", 0.0))
        )
        label = f"{scenario}: {entry.name} {_brief(entry.settings)}"
        with self._board.run(label, jobs=jobs, seconds=seconds) as on_tick:
            run = run_once(self._server, entry.system, spec, on_tick, pinned=pinned)
        self._board.say(f"{label}  {_headline(run, mode)}")
        if not run.ledger_is_right:
            self.wrong_ledgers.append(f"{label}: {dict(run.ledger)}")
        return run

    def _common(self, mode: str) -> dict[str, Setting]:
        common: dict[str, Setting] = {
            "payload": self._scale.payload,
            "submit_batch": self._scale.submit_batch,
        }
        if mode in {"submit", "burn_down"}:
            common["jobs"] = self._scale.jobs
        if mode == "continuous":
            common |= {"seconds": self._scale.seconds, "depth": self._scale.depth}
        return common

    def _settings(self, mode: str, settings: Settings) -> dict[str, Setting]:
        machine: Settings = {"postgres": self._server.version, "cpus": cpu_count() or 0, **SETTINGS}
        return {**self._common(mode), **settings, **machine}


def _summary(runs: Sequence[Run], mode: str) -> dict[str, float]:
    rates = [_jobs_per_s(run, mode) for run in runs]
    run = runs[rates.index(median_low(rates))]
    metrics = run.metrics(_jobs(run, mode))
    if len(runs) > 1:
        metrics |= {"runs": len(runs), "jobs_per_s_min": min(rates), "jobs_per_s_max": max(rates)}
    if mode == "continuous":
        metrics |= _windows(run)
    return metrics


def _windows(run: Run) -> dict[str, float]:
    """Whether the line is flat."""
    window = min(10.0, run.elapsed_s / 3)
    first, last = run.rate(0.0, window), run.rate(run.elapsed_s - window, run.elapsed_s)
    return {
        "window_s": window,
        "first_window_jobs_per_s": first,
        "last_window_jobs_per_s": last,
        "last_over_first": last / first if first else 0.0,
    }


def _jobs(run: Run, mode: str) -> int:
    return run.submitted if mode == "submit" else run.completed


def _jobs_per_s(run: Run, mode: str) -> float:
    return _jobs(run, mode) / run.elapsed_s


def _headline(run: Run, mode: str) -> str:
    if mode == "stats":
        return f"{run.extra['stats_max_ms']:,.0f} ms at most"
    if mode == "reads":
        worst = {name: ms for name, ms in run.extra.items() if name in HEADLINES}
        return ", ".join(f"{name} {ms:.1f}" for name, ms in worst.items())
    if mode == "hour":
        return ", ".join(
            f"{name} {run.extra[name]:.1f}" for name in HOUR_HEADLINES if name in run.extra
        )
    if mode == "names":
        return ", ".join(f"{name} {run.extra[name]:,.2f}" for name in NAMES_HEADLINES)
    if mode == "history":
        slowest = max((ms, name) for name, ms in run.extra.items() if name.endswith("_max_ms"))
        return "{1} {0:,.1f}".format(*slowest)
    if mode == "pickup":
        return f"p50 {run.extra['pickup_p50_ms']:.1f} ms, p99 {run.extra['pickup_p99_ms']:.1f} ms"
    if mode == "idle":
        share, calls = run.extra["idle_cpu_share"], run.extra["idle_statements_per_s"]
        return f"{share:.2%} of a core, {calls:.1f} statements/s"
    if mode == "webhooks":
        return "{told_of_plain:.3f} of plain jobs, {deliveries_per_s:,.0f} told/s".format(
            **run.extra
        )
    if mode == "scrape":
        return "{scrape_max_ms:,.0f} ms at most, {scrape_samples:,.0f} samples".format(**run.extra)
    return f"{_jobs_per_s(run, mode):,.0f} jobs/s"


def _brief(settings: Settings) -> str:
    shown = {
        key: value for key, value in settings.items() if key not in {"store", "jobs", "seconds"}
    }
    return ", ".join(f"{key} {value}" for key, value in shown.items())


Cell = Callable[[Measuring], None]

CELLS: Final[Mapping[str, Cell]] = {
    "submit": Measuring.submit,
    "burn_down": Measuring.burn_down,
    "continuous": Measuring.continuous,
    "continuous_pinned": Measuring.continuous_pinned,
    "many_lanes": Measuring.many_lanes,
    "stats": Measuring.stats,
    "end_to_end": Measuring.end_to_end,
    "pickup": Measuring.pickup,
    "idle_sessions": Measuring.idle_sessions,
    "scrape": Measuring.scrape,
    "webhooks": Measuring.webhooks,
    "rest_submit": Measuring.rest_submit,
    "rest_batches": Measuring.rest_batches,
    "rest_search": Measuring.rest_search,
    "rest_stats": Measuring.rest_stats,
    "pinned_hour": Measuring.pinned_hour,
    "many_names": Measuring.many_names,
    "long_history": Measuring.long_history,
    "designs": Measuring.designs,
}
GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "storage": ("submit", "burn_down", "continuous", "continuous_pinned", "many_lanes", "stats"),
    "whole": ("end_to_end", "pickup", "idle_sessions", "scrape", "webhooks"),
    "rest": ("rest_submit", "rest_batches", "rest_search", "rest_stats"),
    "lasting": ("pinned_hour", "many_names", "long_history"),
}
