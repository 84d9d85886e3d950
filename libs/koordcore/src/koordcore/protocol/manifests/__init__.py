"""Manifests: what a user hands to `koord apply`, read and judged at the edge.

`documents` (text -> decoded documents, within budgets) -> `reader` (document -> typed object of
`koordcore.protocol.objects`) -> `rules` (what the Kubernetes API would refuse: field, rule, value).
"""

from koordcore.protocol.manifests.documents import read_documents
from koordcore.protocol.manifests.reader import KINDS, InvalidManifest, Manifest, read_manifest

__all__ = ["KINDS", "InvalidManifest", "Manifest", "read_documents", "read_manifest"]
