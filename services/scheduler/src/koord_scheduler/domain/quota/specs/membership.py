"""The quota of a pod: a function of the pod's label and namespace, and of the quotas that exist now.

Source:
    scheduler-core spec, 10.2
"""

from collections.abc import Mapping

from koordcore.protocol import keys
from koordcore.protocol.quota import QuotaSpec


class Membership:
    """Finds the quota of a pod by the pod's label and namespace.

    Args:
        disable_default: Feature gate DisableDefaultQuota: pods without a label have no quota.
    """

    def __init__(self, *, disable_default: bool) -> None:
        self._disable_default = disable_default
        self._specs: dict[str, QuotaSpec] = {}
        self._listing: dict[str, set[str]] = {}

    @property
    def specs(self) -> Mapping[str, QuotaSpec]:
        """Return all quotas by name."""
        return self._specs

    def put(self, spec: QuotaSpec) -> set[str]:
        """Record a new or changed quota.

        Return the namespaces whose pods without a quota label may belong to another quota now.
        """
        before = self.remove(spec.name)
        self._specs[spec.name] = spec
        for namespace in spec.namespaces:
            self._listing.setdefault(namespace, set()).add(spec.name)
        after = {*spec.namespaces, *([spec.name] if spec.namespace == spec.name else [])}
        return before ^ after

    def remove(self, name: str) -> set[str]:
        """Remove a quota. Return the namespaces whose pods without a quota label may have belonged to it."""
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
        """Return the name of the quota of a pod, or None if the pod has no quota.

        If the label is set, it names the quota; the name of a quota that does not exist stands for the default quota.
        Without a label, the first of these quotas is used: the quota in the pod's namespace with the name of this
        namespace; the quota that lists the namespace (the smallest name); the default quota. With gate
        DisableDefaultQuota only the label counts, and a name without a quota means no quota.

        Args:
            label: The pod's quota label; "" if it has none.
            namespace: The pod's namespace.
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
