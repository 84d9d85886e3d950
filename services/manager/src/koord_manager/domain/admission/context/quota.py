"""An ElasticQuota as admission reads it, and the tree of all quotas.

The tree is kept up to date from events. The cost of a query depends only on the parent and the children of the quota.

Source:
    manager spec, 13
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol, cast

from koordcore.protocol import keys, lenient_json
from koordcore.state.index import IdsByKey
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import ResourceList, parse_resources

from koord_manager.domain.admission.json_object import seen, text, texts
from koord_manager.domain.admission.request import JsonObject

RESERVED_NAMES: Final = frozenset((keys.ROOT_QUOTA, keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA))


@dataclass(frozen=True, eq=False)
class Quota:
    """The fields of an ElasticQuota that admission reads."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    min: ResourceList  # Guaranteed amounts of spec.min
    max: ResourceList  # Upper limits of spec.max
    used: ResourceList  # Usage of the quota in its status

    @property
    def is_parent(self) -> bool:
        """Whether the label `is-parent` is "true". Then the quota may have children, and no pod may use it directly."""
        return self.labels.get(keys.QUOTA_IS_PARENT) == "true"

    @property
    def parent(self) -> str:
        """Name of the parent quota from a label; the root quota if the label is missing.

        It is empty for the root quota itself.
        """
        if self.name == keys.ROOT_QUOTA:
            return ""
        return self.labels.get(keys.QUOTA_PARENT) or keys.ROOT_QUOTA

    @property
    def tree_id(self) -> str:
        """Id of the tree of quotas to which the quota belongs, from a label; empty if it belongs to none."""
        return self.labels.get(keys.QUOTA_TREE_ID, "")

    @property
    def is_tree_root(self) -> bool:
        """Whether the quota is the root of a tree that an ElasticQuotaProfile maintains."""
        return self.labels.get(keys.QUOTA_IS_ROOT) == "true"

    @property
    def is_forced(self) -> bool:
        """Whether the label `allow-force-update` exempts the quota from the rules about the sums of its children."""
        return self.labels.get(keys.QUOTA_ALLOW_FORCE_UPDATE) == "true"

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces whose pods use the quota, from an annotation; empty if the annotation is not valid."""
        try:
            return text_list(self.annotations.get(keys.QUOTA_NAMESPACES, ""))
        except InvalidInput:
            return ()

    @cached_property
    def guaranteed(self) -> ResourceList:
        """Amounts that the quota controller guarantees, from an annotation; empty if it is absent or not valid."""
        try:
            return resources_of(self.annotations, keys.QUOTA_GUARANTEED)
        except InvalidInput:
            return {}


def read_quota(document: JsonObject) -> Quota:
    """Parse an ElasticQuota object.

    Raises:
        InvalidInput: A field is not valid; the error names it.
    """
    spec, status = seen(document, "spec"), seen(document, "status")
    return Quota(
        namespace=text(seen(document, "metadata"), "namespace"),
        name=text(seen(document, "metadata"), "name"),
        labels=texts(document, "metadata", "labels"),
        annotations=texts(document, "metadata", "annotations"),
        min=_amounts(spec, "min", "spec"),
        max=_amounts(spec, "max", "spec"),
        used=_amounts(status, "used", "status"),
    )


def _amounts(holder: JsonObject, name: str, path: str) -> ResourceList:
    try:
        return parse_resources(holder.get(name))
    except InvalidInput as error:
        raise error.at(f"{path}.{name}") from error


def resources_of(annotations: Mapping[str, str], key: str) -> ResourceList:
    """Parse the resource list in the annotation `key`; return an empty mapping if the annotation is absent or empty.

    Raises:
        InvalidInput: The annotation is not a valid resource list.
    """
    written = annotations.get(key)
    if not written:
        return {}
    try:
        return parse_resources(lenient_json.parse_json(written))
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{key}]") from error


def text_list(written: str) -> tuple[str, ...]:
    """Parse a JSON list of strings; return an empty tuple for an empty text and for null.

    Raises:
        InvalidInput: The text is not a JSON list of strings.
    """
    if not written:
        return ()
    decoded = lenient_json.parse_json(written)
    if decoded is None:
        return ()
    if not isinstance(decoded, list) or not all(isinstance(item, str) for item in cast("list[object]", decoded)):
        raise InvalidInput("a JSON list of texts", written)
    return tuple(cast("list[str]", decoded))


class QuotaTree(Protocol):
    """Queries about existing quotas, which the rules for quotas and pods need.

    `Quotas` and `QuotasWithPending` implement it.
    """

    def get(self, name: str) -> Quota | None:
        """Return the quota of a name, or None if there is none; names are unique in the cluster."""
        ...

    def children(self, name: str) -> Iterable[Quota]: ...

    def of_namespace(self, namespace: str) -> Quota | None:
        """Return the quota whose annotation `namespaces` contains a namespace, or None if there is none.

        If the annotations of several quotas contain it, return the first quota by name.
        """
        ...


class Quotas:
    """All observed quotas, indexed by name, parent and namespace."""

    def __init__(self) -> None:
        self._by_name: dict[str, Quota] = {}
        self._by_parent = IdsByKey[str]()
        self._by_namespace = IdsByKey[str]()

    def put(self, quota: Quota) -> None:
        """Add or replace a quota.

        If two quotas of different namespaces have the same name, the one added later replaces the other. Admission
        prevents this case.
        """
        self._by_name[quota.name] = quota
        self._by_parent.put(quota.name, quota.parent)
        self._by_namespace.put(quota.name, *quota.namespaces)

    def remove(self, namespace: str, name: str) -> None:
        """Remove a quota; no-op if the name is unknown or if the quota of this name is in another namespace."""
        known = self._by_name.get(name)
        if known is not None and known.namespace == namespace:
            del self._by_name[name]
            self._by_parent.put(name)
            self._by_namespace.put(name)

    def get(self, name: str) -> Quota | None:
        """Return the quota of a name, or None if there is none; names are unique in the cluster.

        See `QuotaTree.get`.
        """
        return self._by_name.get(name)

    def children(self, name: str) -> list[Quota]:
        return [self._by_name[child] for child in sorted(self._by_parent.of(name))]

    def of_namespace(self, namespace: str) -> Quota | None:
        """Return the quota whose annotation `namespaces` contains a namespace, or None if there is none.

        See `QuotaTree.of_namespace`.
        """
        names = self._by_namespace.of(namespace)
        return self._by_name[min(names)] if names else None

    def all(self) -> list[Quota]:
        return [self._by_name[name] for name in sorted(self._by_name)]


class QuotasWithPending:
    """The observed quotas, overlaid with accepted changes that were not observed yet.

    Args:
        pending: Quota name -> accepted quota, or None for an accepted deletion.
    """

    def __init__(self, observed: Quotas, pending: Mapping[str, Quota | None]) -> None:
        self._observed = observed
        self._pending = pending

    def get(self, name: str) -> Quota | None:
        """Return the quota of a name, or None if there is none; names are unique in the cluster.

        See `QuotaTree.get`.
        """
        return self._pending[name] if name in self._pending else self._observed.get(name)

    def children(self, name: str) -> list[Quota]:
        found = [quota for quota in self._observed.children(name) if quota.name not in self._pending]
        found += [quota for quota in self._pending.values() if quota is not None and quota.parent == name]
        return sorted(found, key=lambda quota: quota.name)

    def of_namespace(self, namespace: str) -> Quota | None:
        """Return the quota whose annotation `namespaces` contains a namespace, or None if there is none.

        See `QuotaTree.of_namespace`.
        """
        for quota in self._pending.values():
            if quota is not None and namespace in quota.namespaces:
                return quota
        observed = self._observed.of_namespace(namespace)
        return None if observed is None or observed.name in self._pending else observed


def tree_with(observed: Quotas, pending: Mapping[str, Quota | None]) -> QuotaTree:
    """Return the observed quotas overlaid with pending ones; the observed quotas themselves if nothing is pending.

    Args:
        pending: Quota name -> accepted quota, or None for an accepted deletion.
    """
    return QuotasWithPending(observed, pending) if pending else observed
