"""Warnings about the files that `koord replay --rerun-manager` tries.

A warning names a value that is accepted but probably has another effect than intended. `koord lint` and `koord apply`
give the same warnings.
"""

from collections.abc import Iterable

from koord_manager.domain.admission.context.facts import ConfigNames
from koord_manager.domain.documents.warnings import document_warnings
from koordcore.protocol.manifests import shape_manifest
from koordcore.protocol.objects import ConfigMap


def profile_remarks(documents: Iterable[object]) -> tuple[str, ...]:
    """Return warnings about ClusterColocationProfiles, each with the name of its profile.

    Args:
        documents: Profiles that `koordctl.what_if.admission.read_profiles` accepts.
    """
    return tuple(
        f"{shape_manifest(document).object.metadata.name}: {sentence}"
        for document in documents
        for sentence in document_warnings(document)
    )


def config_remarks(document: object, names: ConfigNames) -> tuple[str, ...]:
    """Return warnings about a ConfigMap, including one if the manager does not read a ConfigMap of this name.

    Args:
        document: A ConfigMap that `koordctl.what_if.manager.read_chosen` accepts.
        names: Namespace and name of the ConfigMap that the manager reads.
    """
    found = shape_manifest(document).object
    assert isinstance(found, ConfigMap), "nothing else is tried"
    given, read = f"{found.metadata.namespace}/{found.metadata.name}", f"{names.slo_namespace}/{names.slo_name}"
    other = (
        f"metadata: the manager reads the ConfigMap {read} only, this is {given}; it is tried as if it were that one"
    )
    return (*([other] if given != read else []), *document_warnings(document))
