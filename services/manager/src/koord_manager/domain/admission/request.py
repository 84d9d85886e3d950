"""The request and the decision of admission.

Source:
    manager spec, 7.1, 17.3
"""

from enum import StrEnum
from typing import Any

import msgspec
from koordcore.values.invalid import InvalidInput

JsonObject = dict[str, Any]
"""A Kubernetes object as decoded JSON, with all fields, including those that the log does not mirror."""


class Operation(StrEnum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    uid: str  # Uid of the request, from which the random numbers for profiles with a probability derive
    operation: Operation  # What the request does with the object
    resource: str  # Plural name, such as `pods`
    subresource: str = ""  # Subresource, such as `status`, or empty for the object itself
    namespace: str = ""  # Namespace of the request, used if the object has none
    name: str = ""  # Name of the object, or empty if the API server generates it later
    object: JsonObject | None = None  # The submitted object, which no step changes in place, or None on DELETE
    old_object: JsonObject | None = None  # The stored object, or None on CREATE
    dry_run: bool = False  # Whether the request must leave no trace
    user: str = ""  # Name of the user, or empty if unknown


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    rule: str  # Id of the rule, such as `required-labels`
    field: str  # Path of the field, such as `labels.koordinator.sh/qosClass`
    message: str  # Sentence for the user, with the text that the API server shows


def violation_of(error: InvalidInput, rule: str) -> Violation:
    """Return the violation for a value that could not be parsed.

    Args:
        error: The parse error; its path and message become field and message.
    """
    return Violation(rule=rule, field=error.path, message=error.sentence())


class Refused(Exception):
    """Raised by a step of admission that denies the object, with its violations. `chain` turns it into a decision."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__(joined(violations))
        self.violations = violations


def joined(violations: list[Violation]) -> str:
    """Return the messages of violations as one text: the message itself for one, `[a, b]` for several."""
    sentences = [violation.message for violation in violations]
    return sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"


class AdmissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    object: JsonObject | None  # The changed object, or the submitted one if no step changed it
    steps: tuple[str, ...] = ()  # Names of the steps that changed it, in order
    violations: list[Violation] = []  # Broken rules, or empty if the object is allowed
    warnings: tuple[str, ...] = ()  # Warnings for the user, which do not depend on the result

    @property
    def allowed(self) -> bool:
        return not self.violations

    @property
    def message(self) -> str:
        """Sentence for the user, or empty if the object is allowed."""
        return joined(self.violations) if self.violations else ""
