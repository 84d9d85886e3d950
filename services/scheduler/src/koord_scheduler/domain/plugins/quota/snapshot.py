"""All recorded quotas, nodes and pods as plain values for a snapshot. Sums and runtimes follow from them."""

from collections.abc import Iterable, Iterator

import msgspec
from koordcore.protocol.quota import QuotaSpec

from koord_scheduler.domain.plugins.quota.node import QuotaPod
from koord_scheduler.domain.plugins.quota.specs import PodFacts


class PodKind(msgspec.Struct, frozen=True, array_like=True):
    """The fields that many pods of a snapshot have in common, stored once."""

    quota_label: str
    namespace: str
    requests: dict[str, int]
    priority: int
    preemptible: bool


class SavedPod(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a snapshot that differ from pod to pod. `kind` is the index of its `PodKind` in the snapshot; the
    other fields are those of `QuotaPod` and `PodFacts`.
    """

    uid: str
    name: str
    kind: int
    assigned: bool
    ignored: bool
    start_time: float | None
    ignored_at: float | None


class QuotaSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All recorded quotas, nodes and pods in a canonical order, from which sums and runtimes follow."""

    quotas: list[QuotaSpec]  # The quotas by name
    nodes: dict[str, dict[str, int]]  # Node -> its allocatable
    kinds: list[PodKind]  # What many pods have in common
    pods: list[SavedPod]  # The pods by uid
    over_since: dict[str, float]  # Quota -> Unix seconds since which it has used more than its runtime


def save_pods(pods: Iterable[QuotaPod]) -> tuple[list[PodKind], list[SavedPod]]:
    """Return pods in the form of a snapshot: the distinct kinds in the order of first occurrence, and the pods.
    `load_pods` is the inverse.
    """
    numbers: dict[tuple[object, ...], int] = {}
    kinds: list[PodKind] = []
    saved: list[SavedPod] = []
    for pod in pods:
        facts = pod.facts
        requests = tuple(sorted(facts.requests.items()))
        key = (facts.quota_label, facts.namespace, requests, facts.priority, facts.preemptible)
        kind = numbers.get(key)
        if kind is None:
            kind = numbers[key] = len(kinds)
            kinds.append(PodKind(facts.quota_label, facts.namespace, dict(requests), facts.priority, facts.preemptible))
        saved.append(
            SavedPod(facts.uid, facts.name, kind, pod.assigned, pod.ignored, facts.start_time, facts.ignored_at)
        )
    return kinds, saved


def load_pods(snapshot: QuotaSnapshot) -> Iterator[QuotaPod]:
    """Yield the pods of a snapshot. They are not counted in any quota yet."""
    for saved in snapshot.pods:
        kind = snapshot.kinds[saved.kind]
        facts = PodFacts(
            uid=saved.uid,
            namespace=kind.namespace,
            name=saved.name,
            quota_label=kind.quota_label,
            requests=kind.requests,
            priority=kind.priority,
            preemptible=kind.preemptible,
            start_time=saved.start_time,
            ignored_at=saved.ignored_at,
        )
        yield QuotaPod(facts, assigned=saved.assigned, ignored=saved.ignored)
