"""What admission is asked and what it answers.

    Request --chain.admit(facts, options)--> AdmissionDecision

source    manager spec, 7.1, 17.3
"""

from enum import StrEnum
from typing import Any

import msgspec
from koordcore.values.invalid import InvalidInput

JsonObject = dict[str, Any]
"""A Kubernetes object as decoded JSON: admission keeps every field, also those that the log does not mirror."""


class Operation(StrEnum):
    """What is done to the object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One object on its way in.

    uid          of the request; draws of profiles with a probability follow from it
    resource     plural (`pods`); subresource "" for the object itself
    namespace    of the request; an object without one is judged as if it had this
    object       as submitted (None on DELETE); never changed
    old_object   as stored (None on CREATE)
    dry_run      nothing may remember this request
    user         who asks, "" when unknown
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

    rule      id of the rule (manager spec, 10 to 13)
    field     where: `labels.koordinator.sh/qosClass`
    message   the sentence for the user, in the API server's form
    """

    rule: str
    field: str
    message: str


def violation_of(error: InvalidInput, rule: str) -> Violation:
    """The violation that a parser's complaint stands for."""
    return Violation(rule=rule, field=error.path, message=error.sentence())


class Refused(Exception):
    """Admission refuses the object; raised by a step, caught by the chain."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__(joined(violations))
        self.violations = violations


def joined(violations: list[Violation]) -> str:
    """The message for the user: one sentence, or several as `[a, b]`."""
    sentences = [violation.message for violation in violations]
    return sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"


class AdmissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What admission says.

    object       the object after mutation; the submitted one itself when nothing changed
    steps        what changed it, in order
    violations   why it is refused; empty when it is allowed
    warnings     what is allowed and yet worth a look, said also of a refused object
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
        """The sentence for the user, "" when it is allowed."""
        return joined(self.violations) if self.violations else ""
