"""The book of ElasticQuota: quotas from objects, nodes and pods, and their published statuses."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from koordcore.events.envelope import AggregateRef, Event, name_from_token, name_token
from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol.objects import Node, Pod, object_from_json
from koordcore.protocol.quota import BUILT_IN, quota_spec
from koordcore.protocol.scheduling_objects import ElasticQuota
from koordcore.values import codec
from koordcore.values.codec import array_pieces
from koordcore.values.override import override

from koord_scheduler.domain.cluster.record import is_finished
from koord_scheduler.domain.columns.node_shape import NodeShape
from koord_scheduler.domain.config.koordinator_args import ElasticQuotaArgs
from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.plugins.quota.books import QuotaChanges
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.specs import pod_facts


class QuotaBook(Book):
    """All quotas. A status counts as published before the log has stored it, and no longer if the log refuses it."""

    name = "ElasticQuota"
    plurals = frozenset({"elasticquotas"})
    kinds = frozenset({"quota"})
    facts_type = list[QuotaStatusComputed]

    def __init__(self, cluster: Cluster, args: ElasticQuotaArgs | None = None) -> None:
        self.quotas = QuotaManager(args, cluster.gates)  # The quotas, with the usage of pods
        self.changes = QuotaChanges(self.quotas)  # Quotas whose status may have changed since it was published
        self.published: dict[str, QuotaStatusComputed] = {}  # Name -> last published status

    @override
    def put_object(self, plural: str, document: object) -> Sequence[str]:
        quota = object_from_json(document, ElasticQuota)
        spec = quota_spec(quota.metadata, quota.spec.min, quota.spec.max)
        self.quotas.written.add(spec.name)
        self.quotas.moves += 1
        return self.quotas.upsert_quota(spec).warnings

    @override
    def drop_object(self, plural: str, namespace: str, name: str) -> Sequence[str]:
        self.quotas.written.discard(name)
        warnings = self.quotas.delete_quota(name).warnings
        self.quotas.moves += 1
        self.published.pop(name, None)  # the next quota of this name gets a status of its own
        self.changes.again(name)
        return warnings

    @override
    def put_node(self, row: int, node: Node, shape: NodeShape) -> None:
        self.quotas.set_node(node.metadata.name, shape.allocatable)
        self.quotas.moves += 1

    @override
    def drop_node(self, row: int, name: str) -> None:
        self.quotas.remove_node(name)
        self.quotas.moves += 1

    @override
    def put_pod(self, uid: str, pod: Pod, requests: Mapping[str, int], *, assigned: bool) -> None:
        if is_finished(pod):  # it requests nothing any more, unlike in Koordinator
            self.drop_pod(uid)
            return
        self.quotas.pod_seen(pod_facts(uid, pod, requests, self.quotas.gates), assigned=assigned)

    @override
    def drop_pod(self, uid: str) -> None:
        if uid in self.quotas.pods:
            self.quotas.pod_gone(uid)
            self.quotas.moves += 1

    @override
    def apply(self, event: Event) -> None:
        if isinstance(event, QuotaStatusComputed) and event.name in self.quotas.forest.nodes:
            self.published[event.name] = event

    @override
    def takes(self, event: Event) -> bool:
        if isinstance(event, QuotaStatusComputed):
            if self.published.get(event.name) == event:
                return False
            self.published[event.name] = event
        return True

    @override
    def unsaid(self, event: Event, *, again: bool) -> None:
        if isinstance(event, QuotaStatusComputed):
            if self.published.get(event.name) is event:
                del self.published[event.name]
            if again:
                self.changes.again(event.name)

    @override
    def exists(self, ref: AggregateRef) -> bool:
        return name_from_token(ref.id) in self.published

    @override
    def facts(self, under_way: Container[AggregateRef]) -> Iterator[bytes]:
        said = sorted(self.published.items())
        return array_pieces(
            [status for name, status in said if AggregateRef("quota", name_token(name)) not in under_way]
        )

    @override
    def hashed(self) -> Iterator[tuple[str, object]]:
        for uid, pod in self.quotas.pods.items():
            if pod.quota is not None and pod.quota.name not in BUILT_IN:
                yield uid, pod.quota.name

    @override
    def restore(self, facts: bytes) -> None:
        said = codec.decode(facts, list[QuotaStatusComputed])
        self.published.update({status.name: status for status in said})

    @override
    def many_pods(self) -> AbstractContextManager[None]:
        return self.quotas.many_pods()
