"""As much of PromQL as tests of our own expressions need: selectors, ranges and grouping labels."""

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

VARIABLES: Final[Mapping[str, str]] = {
    "$__rate_interval": "4m",
    "$__range": "1h",
    "$job": "queue-operator",
    "$namespace": ".*",
    "$instance": ".+",
}
_SELECTOR: Final = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}(?:\[([^\]]+)\])?")
_MATCHER: Final = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_GROUPING: Final = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_BARE: Final = re.compile(r"(?<![\w:])(?:queue\w+|job_namespace:[\w:]+)(?![\w:{])")
_CALL: Final = re.compile(r"(\w+)\($")


@dataclass(frozen=True)
class Selector:
    """One selector. `call` is the function right around it, "" for none."""

    metric: str
    matchers: Mapping[str, tuple[str, str]]
    window: str | None
    call: str


def selectors(expression: str) -> Iterator[Selector]:
    for found in _SELECTOR.finditer(expression):
        matchers = {name: (kind, value) for name, kind, value in _MATCHER.findall(found[2])}
        call = _CALL.search(expression[: found.start()])
        yield Selector(found[1], matchers, found[3], call[1] if call else "")


def without_selectors(expression: str) -> list[str]:
    """Names of our metrics that stand without matchers."""
    quoted = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    return _BARE.findall(quoted)


def grouping(expression: str) -> set[str]:
    """Every label that series are grouped or matched by."""
    parts = (part for found in _GROUPING.findall(expression) for part in found.split(","))
    return {part.strip() for part in parts} - {""}


def expanded(expression: str) -> str:
    """The expression as Grafana sends it when everything is chosen."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def faults(expressions: Iterable[str], folder: Path) -> str:
    """What promtool, Prometheus' own parser, says against them; empty if nothing."""
    rules = [
        {"record": f"checked:{number}", "expr": expanded(expression)}
        for number, expression in enumerate(expressions)
    ]
    file = folder / "checked.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "checked", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
