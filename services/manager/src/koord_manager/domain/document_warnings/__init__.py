"""What a document says that is taken and that nobody will understand: said at every door, taken or refused.

`metadata` (labels and annotations, by `metadata_rules`), `unknown_fields` (names of fields, by
`koordcore.protocol.kubernetes_fields` and the custom resource definitions), `label_selectors` (that match nothing),
`spelling` (what was probably meant). What an slo-controller-config says in its data:
`koord_manager.domain.config_checks.cautions`.
"""

from itertools import chain, islice

from koord_manager.domain.document_warnings.label_selectors import unreadable_selectors
from koord_manager.domain.document_warnings.metadata import metadata_warnings
from koord_manager.domain.document_warnings.unknown_fields import unknown_fields

MOST = 50
"""Sentences about one document, at most: nobody reads more, and each costs a search for what was meant."""


def document_warnings(document: object) -> tuple[str, ...]:
    """A sentence `field: what is wrong, what was probably meant` for each thing in a document that is not understood.

    document  JSON value, as `koordcore.protocol.manifests.read_documents` gives it; of whatever shape
    """
    return tuple(
        islice(chain(unknown_fields(document), unreadable_selectors(document), metadata_warnings(document)), MOST)
    )
