"""The admission policy for what a CRD rule cannot see: a payload of any shape."""

from typing import Any, Final

from queue_operator.crd.names import GROUP, QUEUE_JOB, VERSION

POLICY_NAME: Final = f"{QUEUE_JOB.plural}-payload.{GROUP}"

_BOTH_OR_NONE: Final = "has(object.spec.payload) != has(object.spec.payloadText)"
_UNCHANGED: Final = (
    "oldObject == null || (has(object.spec.payload) == has(oldObject.spec.payload) && "
    "(!has(object.spec.payload) || object.spec.payload == oldObject.spec.payload))"
)


def payload_policy() -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY_NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": [VERSION],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [QUEUE_JOB.plural],
                    }
                ]
            },
            "validations": [
                {
                    "expression": _BOTH_OR_NONE,
                    "message": "give exactly one of spec.payload and spec.payloadText",
                },
                {
                    "expression": _UNCHANGED,
                    "message": "spec.payload cannot change after creation; create another QueueJob",
                },
            ],
        },
    }


def payload_policy_binding() -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY_NAME},
        "spec": {"policyName": POLICY_NAME, "validationActions": ["Deny"]},
    }
