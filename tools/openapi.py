"""Writes the OpenAPI document of the REST API."""

import json
from pathlib import Path

from queue_operator.api.app import document_app


def documents() -> dict[Path, str]:
    """The generated file: path below the repository, content."""
    text = json.dumps(document_app().openapi(), indent=2, ensure_ascii=False)
    return {Path("docs/reference/openapi.json"): f"{text}\n"}
