"""What ElasticQuota reads of a pod."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.annotations.scheduling import is_quota_non_preemptible
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests

from koord_scheduler.domain.quota.specs.settings import QuotaGates

DEFAULT_GRACE_SECONDS: Final = 30


class PodFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod.

    Attributes:
        quota_label: Name of the quota that the pod asks for, "" none.
        requests: Milli-cores for cpu, whole units otherwise; never negative.
        start_time: Seconds since the epoch, None: not started.
        ignored_at: Time from which on a pod that is being deleted counts no more; None: until it is deleted.
    """

    uid: str
    namespace: str
    name: str
    quota_label: str = ""
    requests: Mapping[str, int] = {}
    priority: int = 0
    preemptible: bool = True
    start_time: float | None = None
    ignored_at: float | None = None


def pod_facts(uid: str, pod: Pod, requests: Mapping[str, int], gates: QuotaGates) -> PodFacts:
    """Return what counts of a pod.

    Args:
        requests: Of the pod as `pod_requests` gives them, overhead included.

    Raises:
        InvalidInput: A malformed request, with gate ElasticQuotaIgnorePodOverhead only.

    Source:
        scheduler-core spec, 10.2, 10.3
    """
    metadata, spec = pod.metadata, pod.spec
    if spec.overhead and gates.ignore_pod_overhead:
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


def _ignored_at(pod: Pod, gates: QuotaGates) -> float | None:
    if gates.immediate_ignore_terminating_pod:
        return 0.0
    deleted = _seconds(pod.metadata.deletion_timestamp or "")
    if deleted is None or not gates.ignore_terminating_pod:
        return None
    grace = pod.spec.termination_grace_period_seconds
    return deleted + (DEFAULT_GRACE_SECONDS if grace is None else grace)


def _seconds(text: str) -> float | None:
    """Return seconds since the epoch of an RFC 3339 text with its offset; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None
