"""Changes of objects that another service asks the manager for: create, delete and patch them, open and close nodes.

The manager is the only writer of objects. Without an API server it appends the facts of a change; with one it sends the
change to the API server.
"""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from koordcore.protocol.objects import Taint


class CreateObject(msgspec.Struct, frozen=True, kw_only=True, tag="create", forbid_unknown_fields=True):
    """Change that creates a custom resource. If an object with this name exists, nothing is changed."""

    document: dict[str, Any]  # The object, with apiVersion, kind and metadata


class DeleteObject(
    msgspec.Struct, frozen=True, kw_only=True, tag="delete", omit_defaults=True, forbid_unknown_fields=True
):
    """Change that deletes an object."""

    kind: str  # Kind of the object, such as "Reservation"
    namespace: str = ""  # "" for a cluster-scoped kind
    name: str  # Name of the object
    uid: str = ""  # Delete only the object with this uid; "" for any


class PatchObject(
    msgspec.Struct, frozen=True, kw_only=True, tag="patch", omit_defaults=True, forbid_unknown_fields=True
):
    """Change that merges a JSON merge patch (RFC 7386) into a pod or a custom resource."""

    kind: str  # Kind of the object, such as "Pod"
    namespace: str = ""  # "" for a cluster-scoped kind
    name: str  # Name of the object
    uid: str = ""  # Patch only the object with this uid; "" for any
    patch: dict[str, Any]  # The patch. Null removes a field.


class ChangeNode(msgspec.Struct, frozen=True, kw_only=True, tag="node", omit_defaults=True, forbid_unknown_fields=True):
    """Change of a node that opens it for new pods or closes it. Labels and taints that are not listed stay."""

    name: str  # Name of the node
    labels: dict[str, str | None] = {}  # Label -> value; None removes the label
    # Annotation -> new value. Without an API server, they are stored only if the change also alters labels, taints or
    # `unschedulable`.
    annotations: dict[str, str] = {}
    taints: list[Taint] = []  # Taints to add. A taint with the same key and effect is replaced.
    removed_taints: list[Taint] = []  # Taints to remove, by key and effect
    unschedulable: bool | None = None  # New value of `spec.unschedulable`; None leaves it


ObjectChange: TypeAlias = CreateObject | DeleteObject | PatchObject | ChangeNode


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to the manager to change objects. Each change succeeds or fails on its own."""

    changes: list[ObjectChange]  # The changes, in order


class ChangeResult(StrEnum):
    """Outcome of one change of an object that a service asked the manager for."""

    DONE = "done"  # The object is as asked for, because of this change or already before
    EXISTS = "exists"  # An object to create exists already
    ABSENT = "absent"  # The object does not exist, or the object with its name has another uid
    REFUSED = "refused"  # Admission or the API server refused the change. A repetition does not help.


class ChangeOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of one change of a `ChangeRequest`."""

    result: ChangeResult  # Whether the change was made
    message: str = ""  # Why the change was not made; "" if it was made


class ChangeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `ChangeRequest`: one outcome per change, in the order of the changes."""

    outcomes: list[ChangeOutcome]
