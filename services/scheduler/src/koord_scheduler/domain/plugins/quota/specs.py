"""What ElasticQuota reads of a pod, which quota it belongs to, and the quotas that exist without an object. The quota
of a pod is a function of the pod's label and namespace, and of the quotas that exist now.

Source: scheduler-core spec, 10.2
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import is_quota_non_preemptible
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.quota import QuotaSpec
from koordcore.values.quantity import Quantity
from koordcore.values.resources import amount_of

from koord_scheduler.domain.config.koordinator_args import ElasticQuotaArgs
from koord_scheduler.domain.framework.gates import SchedulerGates

DEFAULT_GRACE_SECONDS: Final = 30


class PodFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The properties of one pod that ElasticQuota reads."""

    uid: str
    namespace: str
    name: str
    quota_label: str = ""  # Name of the quota in the pod's label; "" if it has none
    requests: Mapping[str, int] = {}  # Milli-cores for cpu, whole units otherwise; never negative
    priority: int = 0
    preemptible: bool = True  # Whether the pod may be evicted for others; False if its label forbids it
    start_time: float | None = None  # Unix seconds; None if the pod has not started
    # Unix seconds from which a pod that is being deleted no longer counts. None: it counts until it is deleted.
    ignored_at: float | None = None


def pod_facts(uid: str, pod: Pod, requests: Mapping[str, int], gates: SchedulerGates) -> PodFacts:
    """Return the properties of a pod that ElasticQuota reads. `requests`: its requests as `pod_requests` returns them,
    overhead included. Raises InvalidInput: a request is malformed; only with gate ElasticQuotaIgnorePodOverhead.
    Source: scheduler-core spec, 10.2, 10.3
    """
    metadata, spec = pod.metadata, pod.spec
    if spec.overhead and gates.elastic_quota_ignore_pod_overhead:
        requests = pod_requests(msgspec.structs.replace(pod, spec=msgspec.structs.replace(spec, overhead={})))
    if requests and min(requests.values()) < 0:
        requests = {name: max(amount, 0) for name, amount in requests.items()}
    labels = metadata.labels
    return PodFacts(
        uid=uid,
        namespace=metadata.namespace,
        name=metadata.name,
        quota_label=labels.get(keys.QUOTA_NAME, ""),
        requests=requests,
        priority=spec.priority or 0,
        preemptible=not is_quota_non_preemptible(labels),
        start_time=_seconds(pod.status.start_time) if pod.status.start_time else None,
        ignored_at=_ignored_at(pod, gates) if metadata.deletion_timestamp else None,
    )


def _ignored_at(pod: Pod, gates: SchedulerGates) -> float | None:
    if gates.elastic_quota_immediate_ignore_terminating_pod:
        return 0.0
    deleted = _seconds(pod.metadata.deletion_timestamp or "")
    if deleted is None or not gates.elastic_quota_ignore_terminating_pod:
        return None
    grace = pod.spec.termination_grace_period_seconds
    return deleted + (DEFAULT_GRACE_SECONDS if grace is None else grace)


def _seconds(text: str) -> float | None:
    """Return the seconds since the epoch of an RFC 3339 text with a time zone, None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def built_in_quotas(args: ElasticQuotaArgs) -> tuple[QuotaSpec, ...]:
    """Return the quotas that exist without an ElasticQuota object: root, system and default.
    Source: scheduler-core spec, 10.1
    """
    namespace = args.quota_group_namespace
    default, system = _amounts(args.default_quota_group_max), _amounts(args.system_quota_group_max)
    return (
        QuotaSpec(name=keys.ROOT_QUOTA, namespace=namespace, parent="", is_parent=True, allow_lent=False),
        QuotaSpec(name=keys.SYSTEM_QUOTA, namespace=namespace, max=system, weight=system),
        QuotaSpec(name=keys.DEFAULT_QUOTA, namespace=namespace, max=default, weight=default),
    )


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount_of(name, quantity) for name, quantity in quantities.items()}


class Membership:
    """Finds the quota of a pod by the pod's label and namespace. `disable_default`: feature gate DisableDefaultQuota:
    pods without a label have no quota.
    """

    def __init__(self, *, disable_default: bool) -> None:
        self._disable_default = disable_default
        self._specs: dict[str, QuotaSpec] = {}
        self._listing: dict[str, set[str]] = {}

    @property
    def specs(self) -> Mapping[str, QuotaSpec]:
        return self._specs

    def put(self, spec: QuotaSpec) -> set[str]:
        """Record a new or changed quota. Return the namespaces whose pods without a quota label may belong to another
        quota now.
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
        """Return the name of the quota of a pod, or None if the pod has no quota. If the label is set, it names the
        quota; the name of a quota that does not exist stands for the default quota. Without a label, the first of these
        quotas is used: the quota in the pod's namespace with the name of this namespace; the quota that lists the
        namespace (the smallest name); the default quota. With gate DisableDefaultQuota only the label counts, and a
        name without a quota means no quota. `label`: the pod's quota label; "" if it has none.
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
