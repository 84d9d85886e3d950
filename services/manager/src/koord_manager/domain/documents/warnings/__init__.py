"""Warnings about parts of a document that are accepted and ignored, whether the document is accepted or refused.

`metadata` checks labels and annotations by `metadata_rules`. `fields` compares the names of fields with
`koordcore.protocol.kubernetes_fields` and the custom resource definitions, and checks selectors and the ends of
Reservations. `hardware` checks requests for devices and reports of hardware. `without_use` finds profiles and jobs that
can never work. `native_gangs` warns of groups that are not placed together.
`koord_manager.domain.admission.config_maps` checks the data of slo-controller-config.
"""

from itertools import chain, islice

from koord_manager.domain.documents.warnings.fields import lifetime_warnings, unknown_fields, unreadable_selectors
from koord_manager.domain.documents.warnings.hardware import hardware_warnings
from koord_manager.domain.documents.warnings.metadata import metadata_warnings
from koord_manager.domain.documents.warnings.native_gangs import native_gang_warnings
from koord_manager.domain.documents.warnings.without_use import warnings_without_use

MOST = 50
"""Maximum number of warnings about one document, because each costs a search for a suggestion."""


def document_warnings(document: object) -> tuple[str, ...]:
    """Return a sentence for each part of a document that is accepted and ignored.

    Args:
        document: Any JSON value, as `koordcore.protocol.manifests.read_documents` returns it.
    """
    return tuple(
        islice(
            chain(
                unknown_fields(document),
                unreadable_selectors(document),
                metadata_warnings(document),
                hardware_warnings(document),
                lifetime_warnings(document),
                warnings_without_use(document),
                native_gang_warnings(document),
            ),
            MOST,
        )
    )
