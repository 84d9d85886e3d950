"""Mirrored custom resources, as the API server stores them: without unknown fields and with defaults.

One aggregate per object: `customspec.<plural>=<name>`, namespaced `customspec.<plural>=<ns>=<name>`. Writer: the
leading manager. A reader decodes the fields that it needs when it folds the event.

`customspec.scales=<ns>=<uid of a controller of pods>` is the Scale of a controller that is not mirrored itself: its
metadata with the controller as owner, and `spec.replicas`.

Source:
    event-bus spec, 2.1 (the `...spec` twins of what schedulers and controllers write); protocol spec, 9
"""

from typing import Any, Final

from koordcore.events.envelope import AggregateRef, Event, name_token
from koordcore.events.registry import CATALOGUE

SCALES: Final = "scales"
"""Plural name in the ids of Scales."""


@CATALOGUE.register(kind="customspec")
class CustomObjectObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource was added or changed in the API server or by `koord apply`.

    Attributes:
        object: The whole object as JSON, after pruning and defaulting, without `managedFields`.
    """

    object: dict[str, Any]


@CATALOGUE.register(kind="customspec")
class CustomObjectDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource was deleted. Another object with its name may follow; it then has another uid.

    Attributes:
        kind: Kind of the object, for example "ElasticQuota".
        namespace: "" for cluster-scoped kinds.
    """

    kind: str
    namespace: str = ""
    name: str


def custom_ref(plural: str, namespace: str, name: str) -> AggregateRef:
    """Return the aggregate of a custom resource: `customspec.<plural>=<namespace>=<name>`.

    Args:
        plural: Plural name of the kind, for example "elasticquotas".
        namespace: "" for cluster-scoped kinds; the id then has no namespace.
        name: Name of the object.
    """
    parts = (plural, namespace, name) if namespace else (plural, name)
    return AggregateRef("customspec", "=".join(name_token(part) for part in parts))


def plural_of(ref_id: str) -> str:
    """Return the plural of the kind (for example "elasticquotas") from the id of an aggregate `customspec`."""
    return ref_id.partition("=")[0]
