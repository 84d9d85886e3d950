"""Manifests: read and validate the documents of `koord apply`.

`documents` (text -> decoded documents, within budgets) -> `reader` (document -> typed object of
`koordcore.protocol.objects`) -> `rules` (the Kubernetes API's validation: field, rule, value). `pod_updates` has the
rules for changes of a stored pod.
"""

from koordcore.protocol.manifests.documents import read_documents
from koordcore.protocol.manifests.pod_updates import check_update
from koordcore.protocol.manifests.reader import (
    KINDS,
    CustomObject,
    InvalidManifest,
    Manifest,
    check_manifest,
    read_manifest,
    shape_manifest,
    shape_mismatch,
)

__all__ = [
    "KINDS",
    "CustomObject",
    "InvalidManifest",
    "Manifest",
    "check_manifest",
    "check_update",
    "read_documents",
    "read_manifest",
    "shape_manifest",
    "shape_mismatch",
]
