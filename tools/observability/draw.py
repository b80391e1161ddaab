"""Draws the dashboards, and each of their panels, as pictures: `python -m observability.draw`.

What is shown is what Prometheus answers to the expressions in the JSON of the chart.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from observability.asking import EVERYTHING, NoAnswer, Period, Prometheus, looks_of
from observability.drawing import DARK, LIGHT, Shown, Theme, page, save, single
from observability.durations import seconds

ROOT: Final = Path(__file__).resolve().parents[2]
BOARDS: Final = ROOT / "charts" / "queue-operator" / "files" / "dashboards"


def boards() -> dict[str, Any]:
    """The dashboards that the chart ships, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(BOARDS.glob("*.json"))}


def answered(
    board: Mapping[str, Any],
    prometheus: Prometheus,
    period: Period,
    chosen: Mapping[str, str] = EVERYTHING,
) -> list[Shown]:
    """Each panel with what Prometheus answers. Raises NoAnswer."""
    return [
        Shown(
            panel,
            [
                (look, prometheus.answer(look, period))
                for look in looks_of(board["title"], panel, period, chosen)
            ],
        )
        for panel in board["panels"]
        if panel["type"] != "row"
    ]


def pictures(
    board: Mapping[str, Any], shown: list[Shown], folder: Path, name: str, theme: Theme = DARK
) -> list[Path]:
    """Writes the whole dashboard and each panel; the files, the whole one first."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.png"]
    save(page(board, shown, theme), files[0])
    for one in shown:
        files.append(folder / f"{name}-{file_name(one.panel['title'])}.png")
        save(single(one, theme), files[-1])
    return files


def file_name(title: str) -> str:
    """The title as it is in the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def main() -> int:
    parser = argparse.ArgumentParser(prog="observability.draw", description=__doc__)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="its address")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder to write to")
    parser.add_argument("--last", type=seconds, default=3600.0, help="how long back, such as 30m")
    parser.add_argument("--scrape", type=seconds, default=15.0, help="the scrape interval")
    parser.add_argument("--light", action="store_true", help="black on white")
    parser.add_argument("--job", default=EVERYTHING["job"], help="regular expression")
    parser.add_argument("--namespace", default=EVERYTHING["namespace"], help="regular expression")
    given = parser.parse_args()
    now = time.time()
    period = Period(start_s=now - given.last, end_s=now, scrape_s=given.scrape)
    chosen = {"job": given.job, "namespace": given.namespace}
    prometheus = Prometheus(given.prometheus)
    try:
        for name, board in boards().items():
            shown = answered(board, prometheus, period, chosen if name != "workers" else EVERYTHING)
            files = pictures(board, shown, given.out, name, LIGHT if given.light else DARK)
            print(f"{files[0]} and {len(files) - 1} panels")
    except NoAnswer as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
