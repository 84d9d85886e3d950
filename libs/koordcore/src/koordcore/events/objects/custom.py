"""Mirrored custom resources: every kind of protocol spec, 9, as stored after pruning and defaulting.

One aggregate per object: `customspec.<plural>=<name>`, namespaced `customspec.<plural>=<ns>=<name>`. Writer: the
leading manager. A reader decodes the fields that it needs when it folds the event.

Source:
    event-bus spec, 2.1 (the `...spec` twins of what schedulers and controllers write); protocol spec, 9
"""

from typing import Any

from koordcore.events.envelope import AggregateRef, Event, name_token
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="customspec")
class CustomObjectObserved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource was added or changed. `object` is the whole object without managed fields."""

    object: dict[str, Any]


@CATALOGUE.register(kind="customspec")
class CustomObjectDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource was deleted. Its name may be used again, with another uid."""

    kind: str
    namespace: str = ""
    name: str


def custom_ref(plural: str, namespace: str, name: str) -> AggregateRef:
    """Return the aggregate of a custom resource; `namespace` is "" for cluster-scoped kinds."""
    parts = (plural, namespace, name) if namespace else (plural, name)
    return AggregateRef("customspec", "=".join(name_token(part) for part in parts))


def plural_of(ref_id: str) -> str:
    """Return the plural of the kind (`elasticquotas`) in the id of such an aggregate."""
    return ref_id.partition("=")[0]
