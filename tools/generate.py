"""Writes every generated file of the repository; `--check` only says which are stale."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import chart_crds
import conformance_docs
import limits_docs
import manifests
import metrics_docs
import openapi
import protobuf
import settings_docs
import state_docs
import vectors
from observability import generated as observability

ROOT = Path(__file__).resolve().parent.parent

GENERATORS: tuple[Callable[[], dict[Path, str]], ...] = (
    protobuf.stubs,
    manifests.manifests,
    chart_crds.copies,
    openapi.documents,
    metrics_docs.documents,
    settings_docs.documents,
    limits_docs.documents,
    state_docs.documents,
    conformance_docs.documents,
    vectors.vectors,
    observability.documents,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    check = parser.parse_args().check
    wanted = {path: text for generator in GENERATORS for path, text in generator().items()}
    stale = [path for path, text in wanted.items() if _read(ROOT / path) != text]
    for path in stale:
        if check:
            print(f"stale: {path} (run `make generate`)")
        else:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(wanted[path])
            print(f"wrote {path}")
    return 1 if check and stale else 0


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
