"""Changes of objects that another service asks the manager for: create, delete and patch them, open and close nodes.

The manager is the only writer of objects. Without an API server it appends the facts of a change; with one it sends
the change to the API server.
"""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from koordcore.protocol.objects import Taint


class CreateObject(msgspec.Struct, frozen=True, kw_only=True, tag="create", forbid_unknown_fields=True):
    """Create a custom resource. An object with its name is not changed.

    Attributes:
        document: The object, with apiVersion, kind and metadata.
    """

    document: dict[str, Any]


class DeleteObject(
    msgspec.Struct, frozen=True, kw_only=True, tag="delete", omit_defaults=True, forbid_unknown_fields=True
):
    """Delete an object.

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
    """Merge a JSON merge patch (RFC 7386) into a pod or a custom resource.

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
    """Open or close a node. What the change does not name stays.

    Attributes:
        name: Name of the node.
        labels: Label -> value; None removes the label.
        taints: Taints to add. A taint with the same key and effect is replaced.
        removed_taints: Taints to remove, by key and effect.
        unschedulable: New value of `spec.unschedulable`; None leaves it.
    """

    name: str
    labels: dict[str, str | None] = {}
    taints: list[Taint] = []
    removed_taints: list[Taint] = []
    unschedulable: bool | None = None


ObjectChange: TypeAlias = CreateObject | DeleteObject | PatchObject | ChangeNode


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to change objects. Each change succeeds or fails on its own.

    Attributes:
        changes: The changes, in order.
    """

    changes: list[ObjectChange]


class ChangeResult(StrEnum):
    """How a change ended."""

    DONE = "done"
    """The object is as asked for, because of this change or already before."""
    EXISTS = "exists"
    """An object to create exists already."""
    ABSENT = "absent"
    """The object does not exist, or the object with its name has another uid."""
    REFUSED = "refused"
    """Admission or the API server refused the change. A repetition does not help."""


class ChangeOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one change ended.

    Attributes:
        result: Whether it was made.
        message: Why it was not made; "" if it was.
    """

    result: ChangeResult
    message: str = ""


class ChangeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request: one outcome per change, in order."""

    outcomes: list[ChangeOutcome]
