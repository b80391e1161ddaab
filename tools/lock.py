"""Resolves the dependencies and writes the lock files, with hashes and without index lines."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    _compile("dev", "requirements-dev.lock")
    # The image gets the very versions that the tests ran with.
    constraints = ("--constraints", "requirements-dev.lock")
    _compile("server", "requirements-server.lock", "--extra=tracing", *constraints)


def _compile(extra: str, output: str, *options: str) -> None:
    uv = ROOT / ".venv" / "bin" / "uv"
    subprocess.run(
        [
            uv,
            "pip",
            "compile",
            "pyproject.toml",
            "--quiet",
            "--generate-hashes",
            "--no-emit-index-url",
            "--no-header",
            "--python-version=3.11",
            f"--extra={extra}",
            f"--output-file={output}",
            *options,
        ],
        cwd=ROOT,
        check=True,
    )


if __name__ == "__main__":
    main()
