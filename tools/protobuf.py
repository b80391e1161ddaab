"""Generates the Python stubs of the worker plane from `proto/`."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
SOURCES = sorted(PROTO.glob("queueoperator/v1/*.proto"))


def stubs() -> dict[Path, str]:
    """The generated files: path below the repository, content."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "grpc_tools.protoc",
                f"--proto_path={PROTO}",
                f"--python_out={out}",
                f"--grpc_python_out={out}",
                f"--mypy_out=quiet:{out}",
                f"--mypy_grpc_out=quiet:{out}",
                *(str(source) for source in SOURCES),
            ],
            check=True,
            env={"PATH": str(Path(sys.executable).parent)},
        )
        generated = sorted(Path(out).rglob("*.py*"))
        return {
            Path("operator/queue_operator/wire/v1") / path.name: _relocate(path.read_text())
            for path in generated
        }


def _relocate(text: str) -> str:
    # protoc imports by the folder of the .proto file; the stubs live inside the package.
    return text.replace("from queueoperator.v1 import", "from queue_operator.wire.v1 import")
