"""What is worth a look in the files that `koord replay --rerun-manager` tries: it is taken, and does something else
than was probably meant. `koord lint` and `koord apply` say the same of the documents.
"""

from collections.abc import Iterable

from koord_manager.domain.admission.context.facts import ConfigNames
from koord_manager.domain.document_warnings import document_warnings
from koordcore.protocol.manifests import shape_manifest
from koordcore.protocol.objects import ConfigMap


def profile_remarks(documents: Iterable[object]) -> tuple[str, ...]:
    """Sentences about profiles, each with the name of its own.

    documents   profiles that `koordctl.what_if.admission.read_profiles` takes
    """
    return tuple(
        f"{shape_manifest(document).object.metadata.name}: {sentence}"
        for document in documents
        for sentence in document_warnings(document)
    )


def config_remarks(document: object, names: ConfigNames) -> tuple[str, ...]:
    """Sentences about a ConfigMap, also when it is another one than the manager reads.

    document   a ConfigMap that `koordctl.what_if.manager.read_chosen` takes
    names      where the manager's stands
    """
    found = shape_manifest(document).object
    assert isinstance(found, ConfigMap), "nothing else is tried"
    given, read = f"{found.metadata.namespace}/{found.metadata.name}", f"{names.slo_namespace}/{names.slo_name}"
    other = (
        f"metadata: the manager reads the ConfigMap {read} only, this is {given}; it is tried as if it were that one"
    )
    return (*([other] if given != read else []), *document_warnings(document))
