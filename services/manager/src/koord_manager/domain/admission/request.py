"""The request and the decision of admission.

    Request --chain.admit(facts, options)--> AdmissionDecision

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
    """The operation on the object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An admission request for one object.

    Attributes:
        uid: Uid of the request, which seeds the draws of profiles with a probability.
        resource: Plural (`pods`); an empty subresource is the object itself.
        namespace: Namespace of the request, used for an object without one.
        object: The submitted object, never changed; None on DELETE.
        old_object: The stored object; None on CREATE.
        dry_run: Whether nothing may remember this request.
        user: User of the request, or empty if unknown.
    """

    uid: str
    operation: Operation
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    object: JsonObject | None = None
    old_object: JsonObject | None = None
    dry_run: bool = False
    user: str = ""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule.

    Attributes:
        rule: Id of the rule (manager spec, 10 to 13).
        field: The field, such as `labels.koordinator.sh/qosClass`.
        message: The sentence for the user, in the form of the API server.
    """

    rule: str
    field: str
    message: str


def violation_of(error: InvalidInput, rule: str) -> Violation:
    """Return the violation for a parse error."""
    return Violation(rule=rule, field=error.path, message=error.sentence())


class Refused(Exception):
    """A step refuses the object; caught by the chain."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__(joined(violations))
        self.violations = violations


def joined(violations: list[Violation]) -> str:
    """Return the message for the user: one sentence, or several as `[a, b]`."""
    sentences = [violation.message for violation in violations]
    return sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"


class AdmissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of admission.

    Attributes:
        object: The object after mutation; the submitted one itself if nothing changed.
        steps: The steps that changed it, in order.
        violations: The reasons of a refusal, or empty if allowed.
        warnings: Warnings for the user, also about a refused object.
    """

    object: JsonObject | None
    steps: tuple[str, ...] = ()
    violations: list[Violation] = []
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the object may be stored."""
        return not self.violations

    @property
    def message(self) -> str:
        """The sentence for the user, or "" if allowed."""
        return joined(self.violations) if self.violations else ""
