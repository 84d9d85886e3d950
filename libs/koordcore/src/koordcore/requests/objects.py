"""Changes of objects that another service asks the manager for: create, delete and patch them, open and close nodes.

The manager is the only writer of objects. Without an API server it appends the facts of a change; with one it sends the
change to the API server.
"""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from koordcore.protocol.objects import Taint


class CreateObject(msgspec.Struct, frozen=True, kw_only=True, tag="create", forbid_unknown_fields=True):
    """Change that creates a custom resource. If an object with this name exists, nothing is changed.

    Attributes:
        document: The object, with apiVersion, kind and metadata.
    """

    document: dict[str, Any]


class DeleteObject(
    msgspec.Struct, frozen=True, kw_only=True, tag="delete", omit_defaults=True, forbid_unknown_fields=True
):
    """Change that deletes an object.

    Attributes:
        kind: Kind of the object, such as "Reservation".
        namespace: "" for a cluster-scoped kind.
        name: Name of the object.
        uid: Delete only the object with this uid; "" for any.
    """

    kind: str
    namespace: str = ""
    name: str
    uid: str = ""


class PatchObject(
    msgspec.Struct, frozen=True, kw_only=True, tag="patch", omit_defaults=True, forbid_unknown_fields=True
):
    """Change that merges a JSON merge patch (RFC 7386) into a pod or a custom resource.

    Attributes:
        kind: Kind of the object, such as "Pod".
        namespace: "" for a cluster-scoped kind.
        name: Name of the object.
        uid: Patch only the object with this uid; "" for any.
        patch: The patch. Null removes a field.
    """

    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
    patch: dict[str, Any]


class ChangeNode(msgspec.Struct, frozen=True, kw_only=True, tag="node", omit_defaults=True, forbid_unknown_fields=True):
    """Change of a node that opens it for new pods or closes it. Labels and taints that are not listed stay.

    Attributes:
        name: Name of the node.
        labels: Label -> value; None removes the label.
        annotations: Annotation -> new value. Without an API server, they are stored only if the change also alters
            labels, taints or `unschedulable`.
        taints: Taints to add. A taint with the same key and effect is replaced.
        removed_taints: Taints to remove, by key and effect.
        unschedulable: New value of `spec.unschedulable`; None leaves it.
    """

    name: str
    labels: dict[str, str | None] = {}
    annotations: dict[str, str] = {}
    taints: list[Taint] = []
    removed_taints: list[Taint] = []
    unschedulable: bool | None = None


ObjectChange: TypeAlias = CreateObject | DeleteObject | PatchObject | ChangeNode


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to the manager to change objects. Each change succeeds or fails on its own.

    Attributes:
        changes: The changes, in order.
    """

    changes: list[ObjectChange]


class ChangeResult(StrEnum):
    """Outcome of one change of an object that a service asked the manager for.

    Attributes:
        DONE: The object is as asked for, because of this change or already before.
        EXISTS: An object to create exists already.
        ABSENT: The object does not exist, or the object with its name has another uid.
        REFUSED: Admission or the API server refused the change. A repetition does not help.
    """

    DONE = "done"
    EXISTS = "exists"
    ABSENT = "absent"
    REFUSED = "refused"


class ChangeOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of one change of a `ChangeRequest`.

    Attributes:
        result: Whether the change was made.
        message: Why the change was not made; "" if it was made.
    """

    result: ChangeResult
    message: str = ""


class ChangeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `ChangeRequest`: one outcome per change, in the order of the changes."""

    outcomes: list[ChangeOutcome]
