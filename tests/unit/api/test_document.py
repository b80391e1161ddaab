"""The OpenAPI document is complete, and its examples are true."""

import re
from typing import Any

import pytest
from openapi_spec_validator import validate

from queue_operator.api import examples, schemas
from queue_operator.api.document import document, error_statuses
from queue_operator.api.operation import ANYBODY, Operation
from queue_operator.api.routes import OPERATIONS
from queue_operator.testing.clauses import proves

DOCUMENT = document(OPERATIONS)


def described(operation: Operation[Any]) -> Any:
    return DOCUMENT["paths"][operation.path][operation.method.lower()]


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)
    assert DOCUMENT["openapi"] == "3.1.0"


def test_operations_have_names_and_paths_of_their_own() -> None:
    assert len({one.id for one in OPERATIONS}) == len(OPERATIONS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)


@proves("external-api.Robustness.expect.3")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_an_operation_is_described_with_examples(operation: Operation[Any]) -> None:
    told = described(operation)
    assert told["summary"]
    need = f"the verb `{operation.verb}`" if operation.verb != ANYBODY else "and no right"
    assert need in told["description"]
    statuses = {int(status) for status in told["responses"]}
    assert statuses == set(operation.answers) | error_statuses(operation)
    if operation.body is not None:
        body = told["requestBody"]["content"]["application/json"]
        operation.body.model.model_validate(body["example"])
    for status, model in operation.answers.items():
        if operation.streams and model is not None:
            events = told["responses"][str(status)]["content"]["text/event-stream"]["example"]
            lines = [one for one in events.splitlines() if one.startswith('data: {"')]
            assert lines
            for line in lines:
                model.model_validate_json(line.removeprefix("data: "))
        elif model is not None:
            answer = told["responses"][str(status)]["content"]["application/json"]
            model.model_validate(answer["example"])
            assert answer["schema"] == {"$ref": f"#/components/schemas/{model.__name__}"}


def test_the_example_of_an_error_is_one() -> None:
    schemas.APIError.model_validate(examples.ERROR)


def test_no_example_is_left_over() -> None:
    ids = {one.id for one in OPERATIONS}
    assert set(examples.REQUESTS) <= ids
    assert set(examples.ANSWERS) <= ids


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_every_parameter_is_described(operation: Operation[Any]) -> None:
    named = {one["name"] for one in described(operation)["parameters"] if one["in"] == "query"}
    assert named == set(operation.query.model_fields)
    in_path = [one for one in described(operation)["parameters"] if one["in"] == "path"]
    assert [one["name"] for one in in_path] == re.findall(r"\{(\w+)\}", operation.path)
