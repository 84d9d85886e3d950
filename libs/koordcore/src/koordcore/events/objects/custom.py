"""Mirrored custom resources: every kind of protocol spec, 9, as stored after pruning and defaulting.

One aggregate per object: `customspec.<plural>=<name>`, namespaced `customspec.<plural>=<ns>=<name>`. Writer: the
ingester (manager, leader). The readers that compute with a kind decode the part that they need when they fold it.

Source:
    event-bus spec, 2.1 (the `...spec` twins of what schedulers and controllers write); protocol spec, 9
"""

from typing import Any

from koordcore.events.envelope import AggregateRef, Event, name_token
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="customspec")
class CustomObjectObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource was added or changed; `object` is the whole of it, without managed fields."""

    object: dict[str, Any]


@CATALOGUE.register(kind="customspec")
class CustomObjectDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource is gone. Its name may come back, with another uid."""

    kind: str
    namespace: str = ""
    name: str


def custom_ref(plural: str, namespace: str, name: str) -> AggregateRef:
    """Return the aggregate of a custom resource; namespace "" for cluster-scoped kinds."""
    parts = (plural, namespace, name) if namespace else (plural, name)
    return AggregateRef("customspec", "=".join(name_token(part) for part in parts))


def plural_of(ref_id: str) -> str:
    """Return the plural of the kind (`elasticquotas`) from the id of such an aggregate."""
    return ref_id.partition("=")[0]
