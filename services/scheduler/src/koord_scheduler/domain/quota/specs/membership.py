"""Which quota a pod belongs to: a function of the pod's label and namespace and of the quotas that exist at present.

Source:
    scheduler-core spec, 10.2
"""

from collections.abc import Mapping

from koordcore.protocol import keys
from koordcore.protocol.quota import QuotaSpec


class Membership:
    """The quotas by what they are found by. disable_default: gate DisableDefaultQuota."""

    def __init__(self, *, disable_default: bool) -> None:
        self._disable_default = disable_default
        self._specs: dict[str, QuotaSpec] = {}
        self._listing: dict[str, set[str]] = {}

    @property
    def specs(self) -> Mapping[str, QuotaSpec]:
        """All quotas by name."""
        return self._specs

    def put(self, spec: QuotaSpec) -> set[str]:
        """Take note of a new or changed quota.

        Returns the namespaces whose unlabelled pods may belong elsewhere now.
        """
        before = self.remove(spec.name)
        self._specs[spec.name] = spec
        for namespace in spec.namespaces:
            self._listing.setdefault(namespace, set()).add(spec.name)
        after = {*spec.namespaces, *([spec.name] if spec.namespace == spec.name else [])}
        return before ^ after

    def remove(self, name: str) -> set[str]:
        """Forget a quota; returns the namespaces that it took in."""
        spec = self._specs.pop(name, None)
        if spec is None:
            return set()
        for namespace in set(spec.namespaces):
            listing = self._listing[namespace]
            listing.discard(name)
            if not listing:
                del self._listing[namespace]
        return {*spec.namespaces, *([name] if spec.namespace == name else [])}

    def quota_of(self, label: str, namespace: str) -> str | None:
        """Name of the quota of a pod with this quota label ("" none) in this namespace; None: the pod has no quota.

        label, or a name that does not exist -> default quota; else the quota named like its namespace in that
        namespace; else the one that lists the namespace (smallest name); else the default quota. With gate
        DisableDefaultQuota only the label counts, and an unknown name is no quota.
        """
        if self._disable_default:
            return label if label in self._specs else None
        if label:
            return label if label in self._specs else keys.DEFAULT_QUOTA
        own = self._specs.get(namespace)
        if own is not None and own.namespace == namespace:
            return namespace
        listing = self._listing.get(namespace)
        return min(listing) if listing else keys.DEFAULT_QUOTA
