"""Manifests: read and validate the documents of `koord apply`.

`documents` (text -> decoded documents, within budgets) -> `reader` (document -> typed object of
`koordcore.protocol.objects`) -> `rules` (the Kubernetes API's validation: field, rule, value).
"""

from koordcore.protocol.manifests.documents import read_documents
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
    "read_documents",
    "read_manifest",
    "shape_manifest",
    "shape_mismatch",
]
