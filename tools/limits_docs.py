"""Writes the reference of durations and bounds from the tables that every door reads them by."""

from pathlib import Path

from queue_operator.domain.durations import MAX_CHARACTERS
from queue_operator.domain.limits import BOUNDS
from queue_operator.settings import LimitSettings

_HEAD = f"""\
# Durations and limits

The same at every door: manifests, REST, gRPC, Python, files of submissions and the command line.

## Durations

| written as | examples | means |
|---|---|---|
| seconds | `90`, `0.5`, `1e3` | a number, or its text |
| units | `90s`, `1h30m`, `250ms`, `1.5h`, `2d`, `1w` | Go's form: one or more numbers, each with \
a unit of `w`, `d`, `h`, `m`, `s`, `ms`, `us`, `ns` |
| ISO 8601 | `PT5M`, `P1DT12H`, `P2W`, `PT0,5S` | `P`, weeks `W`, days `D`, `T`, hours `H`, \
minutes `M`, seconds `S`: in this order, each at most once, at least one; a fraction, after a \
point or a comma, only in the last |

Months and years (`P1M`, `P1Y`) are refused, since they have no fixed length: write `P30D` for
thirty days, `PT1M` for a minute. So are clock times (`00:05`), words (`1 day`), blanks, negative
durations and texts of more than {MAX_CHARACTERS} characters. Capitals matter: `5m` is five minutes,
`5M` nothing. What is finer than a microsecond is rounded up.

A field of a manifest can hold an integer or a text, and no fraction: write `"0.5"` or `500ms`.
Over gRPC a duration is a `google.protobuf.Duration`. Answers of the REST API are written in ISO
8601, with days as their largest unit.

## Bounds

| field | kind | least | most | |
|---|---|---|---|---|
"""
_SETTINGS = """
A text is no number, and neither is `true`.

## Sizes that settings change

A server may be told others, by the [setting](settings.md) of the same name in capitals after
`QUEUE_OPERATOR_LIMITS__`.

| limit | usual | |
|---|---|---|
"""


def documents() -> dict[Path, str]:
    """The generated file: path below the repository, content."""
    bounds = [
        f"| `{'`, `'.join(row.of.split(', '))}` | {row.kind} | {row.least:.0f} | "
        f"{row.most:,.0f} | {row.what} |\n"
        for row in BOUNDS
    ]
    sizes = [
        f"| `{name}` | {field.default:,} | {field.description} |\n"
        for name, field in LimitSettings.model_fields.items()
    ]
    text = "".join([_HEAD, *bounds, _SETTINGS, *sizes])
    return {Path("docs/reference/limits.md"): text}
