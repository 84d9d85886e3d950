"""Custom resources: their definitions as package data, and admission as an API server performs it.

`koord apply` and the manager admit every kind of protocol spec, section 9 with `admit`. Read schema.py, catalogue.py,
admit.py in this order.
"""

from koordcore.protocol.crd.admit import Accepted, Refused, admit, admit_as, first_violation, prune_and_default
from koordcore.protocol.crd.catalogue import (
    Json,
    PrinterColumn,
    ResourceVersion,
    Schema,
    definition_texts,
    find_resource,
    resource_versions,
)
from koordcore.protocol.crd.kubernetes_kinds import accepted_kinds, find_accepted

__all__ = [
    "Accepted",
    "Json",
    "PrinterColumn",
    "Refused",
    "ResourceVersion",
    "Schema",
    "accepted_kinds",
    "admit",
    "admit_as",
    "definition_texts",
    "find_accepted",
    "find_resource",
    "first_violation",
    "prune_and_default",
    "resource_versions",
]
