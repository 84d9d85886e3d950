"""The facts that ElasticQuota reads from a pod."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import is_quota_non_preemptible
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests

from koord_scheduler.domain.config.gates import SchedulerGates

DEFAULT_GRACE_SECONDS: Final = 30


class PodFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The properties of one pod that ElasticQuota reads.

    Attributes:
        quota_label: Name of the quota in the pod's label; "" if it has none.
        requests: Milli-cores for cpu, whole units otherwise; never negative.
        preemptible: Whether the pod may be evicted for others; False if its label forbids it.
        start_time: Unix seconds; None if the pod has not started.
        ignored_at: Unix seconds from which a pod that is being deleted no longer counts. None: it counts until it is
            deleted.
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


def pod_facts(uid: str, pod: Pod, requests: Mapping[str, int], gates: SchedulerGates) -> PodFacts:
    """Return the properties of a pod that ElasticQuota reads.

    Args:
        uid: Uid of the pod.
        pod: Its object.
        requests: Its requests as `pod_requests` returns them, overhead included.
        gates: Feature gates.

    Raises:
        InvalidInput: A request is malformed; only with gate ElasticQuotaIgnorePodOverhead.

    Source:
        scheduler-core spec, 10.2, 10.3
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
