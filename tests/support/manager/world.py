"""A manager's view fed with facts and reports by hand, for tests of what it decides: no loop, no log, no clock."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.configuration import NodeInputs, NodePolicies, present_inputs
from koord_manager.domain.controllers.node_policies import OVERCOMMITTED, RENDERED, node_drafts
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, name_from_token, name_token, namespaced_token
from koordcore.events.node_ledger import NodeResourcesTaken, pod_on_node
from koordcore.events.objects import (
    ConfigAccepted,
    CustomObjectObserved,
    NodeSpecAdded,
    PodSpecAdded,
    PodSpecDeleted,
    WorkloadObserved,
    custom_ref,
)
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.protocol.objects import ConfigMap, Node, ObjectMeta, OwnerReference, Pod, Workload, pod_from_json
from koordcore.state import ClusterState
from koordcore.state.aggregates import PodSpecState
from koordcore.values.timestamps import rfc3339
from support.histories.recording import stored

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30


class ManagerWorld:
    """The view, the policies, and the hands that feed them. Every fact happens at `now`."""

    def __init__(self) -> None:
        self.view = ManagerView()
        self.policies = NodePolicies()
        self.now = BEGIN
        self._observed = 0

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def fact(self, ref: AggregateRef, event: Event) -> int:
        """Folds one fact; its position."""
        seq = self.view.state.position + 1
        self.view.fold(stored(seq, Draft(ref, event, self.view.state.last_seq(ref)), at=rfc3339(self.now)))
        return seq

    def restart(self) -> None:
        """Continues in another process, which starts from a snapshot and has no reports yet."""
        self.view = ManagerView(ClusterState.restore(b"".join(self.view.state.snapshot())))
        self.policies = NodePolicies()
        self.policies.refresh(self.view)

    def inputs(self, token: str = "n", policies: NodePolicies | None = None) -> NodeInputs:
        at = present_inputs(policies or self.policies, self.view, token, self.now)
        assert at is not None
        return at

    def decided(self, kind: type[Event], token: str = "n", policies: NodePolicies | None = None) -> list[Draft]:
        """The fact of one kind that the manager decides about a node now, if any."""
        (decision,) = (each for each in (*RENDERED, OVERCOMMITTED) if each.event is kind)
        at = self.inputs(token, policies)
        return node_drafts(at, decision.decide(at))

    def take(self, drafts: Iterable[Draft]) -> list[Event]:
        """Folds what was decided, as the log would hold it."""
        taken: list[Event] = []
        for draft in drafts:
            assert draft.expected_last == self.view.state.last_seq(draft.ref), draft
            self.fact(draft.ref, draft.event)
            taken.append(draft.event)
        return taken

    def configure(self, **sections: Any) -> None:
        """`colocation={...}` becomes the key `colocation-config`."""
        data = {f"{name.replace('_', '-')}-config": json.dumps(content) for name, content in sections.items()}
        meta = ObjectMeta(name="slo-controller-config", namespace="koordinator-system")
        ref = AggregateRef("config", namespaced_token(meta.namespace, meta.name))
        self.fact(ref, ConfigAccepted(object=ConfigMap(metadata=meta, data=data)))
        self.policies.refresh(self.view)

    def node(self, node: Node) -> str:
        token = name_token(node.metadata.name)
        self.fact(AggregateRef("nodespec", token), NodeSpecAdded(object=node))
        return token

    def plain_node(self, name: str = "n", *, cpu: str = "10", memory: str = "100Gi", **labels: str) -> str:
        amounts: dict[str, str | int | float] = {"cpu": cpu, "memory": memory}
        node = Node(metadata=ObjectMeta(name=name, labels=labels))
        node.status.capacity, node.status.allocatable = amounts, dict(amounts)
        return self.node(node)

    def custom(self, plural: str, document: dict[str, Any]) -> int:
        meta = document["metadata"]
        ref = custom_ref(plural, meta.get("namespace", ""), meta["name"])
        return self.fact(ref, CustomObjectObserved(object=document))

    def workload(self, kind: str, name: str, *, uid: str, owners: Sequence[OwnerReference] = ()) -> None:
        meta = ObjectMeta(name=name, namespace="default", uid=uid, owner_references=list(owners))
        workload = Workload(kind=kind, api_version="apps/v1", metadata=meta)
        self.fact(AggregateRef("workloadspec", uid), WorkloadObserved(object=workload))

    def pod(self, uid: str, document: dict[str, Any], *, on: str = "") -> Pod:
        """A pod of the namespace `default` unless it says otherwise; `on`: token of its node."""
        pod = pod_from_json(document)
        pod.metadata.namespace = pod.metadata.namespace or "default"
        pod.metadata.name = pod.metadata.name or uid
        pod.metadata.uid = uid
        self.fact(AggregateRef("podspec", uid), PodSpecAdded(object=pod))
        if on:
            entry = pod_on_node(uid, pod)
            meta = pod.metadata
            why = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="", based_on=BasedOn())
            placed = PodPlaced(
                namespace=meta.namespace,
                name=meta.name,
                node=name_from_token(on),
                requests=entry.requests,
                attempt=1,
                queued_at=rfc3339(self.now),
                explanation=why,
            )
            self.fact(AggregateRef("pod", uid), placed)
            self.fact(AggregateRef("node", on), NodeResourcesTaken(pods=[entry]))
        return pod

    def delete_pod(self, uid: str) -> None:
        spec = self.view.state.of_kind(PodSpecState)[uid].object.metadata
        self.fact(AggregateRef("podspec", uid), PodSpecDeleted(namespace=spec.namespace, name=spec.name))

    def report(
        self,
        node: str = "n",
        *,
        cpu_milli: int = 0,
        memory_bytes: int = GIB,
        pods: Sequence[PodUsage] = (),
        signals: dict[str, float] | None = None,
    ) -> NodeUsageReported:
        """A report of a node (token) now."""
        self._observed += 1
        report = NodeUsageReported(
            updated_at=rfc3339(self.now),
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(cpu_milli, memory_bytes),
            system_usage=Usage(100, GIB),
            pods=list(pods),
            signals=signals or {},
        )
        self.view.observe(self._observed, node, report)
        return report


def usage_of(pod: Pod, cpu_milli: int, memory_bytes: int) -> PodUsage:
    """A sample of a pod."""
    return PodUsage(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        priority_class="koord-prod",
        qos="LS",
        usage=Usage(cpu_milli, memory_bytes),
    )
