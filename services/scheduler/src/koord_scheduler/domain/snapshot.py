"""The scheduler's state as bytes, so that a restart need not fold the whole log.

Only facts are kept: what the log and the API say. Assumptions in flight, cached views, backoffs and the order among
waiting pods of equal priority are not; a restored scheduler attempts every pod without a node anew. Quotas and gangs
follow from their objects and pods; what does not is kept: which groups were satisfied once, and what was said of both.

source    event-bus spec, 6
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from koordcore.events.cluster_topology import ClusterTopologyComputed
from koordcore.events.custom import CustomObjectObserved
from koordcore.events.envelope import AggregateRef
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.mirror import NamespaceObserved, WorkloadObserved
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.ledger import Source
from koord_scheduler.domain.node_policies import NodePolicy
from koord_scheduler.domain.occupancy import Occupant
from koord_scheduler.domain.pods import PodRecord
from koord_scheduler.domain.state import SchedulerState


class _Pod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod as `PodRecord` has it, without what is under way."""

    uid: str
    namespace: str
    name: str
    pod: Pod | None = None
    trigger: str = ""
    spec_event: str = ""
    submitted_at: str = ""
    traceparent: str = ""
    tracestate: str = ""
    seq: int = 0
    node: str = ""
    bound_node: str = ""
    bind_failed: int = 0
    known_since: float = 0.0
    placed_at: float = 0.0


class _Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says about one node: uid -> (requests, cpu and memory with defaults)."""

    node: str
    seq: int
    pods: dict[str, tuple[dict[str, int], tuple[int, int]]]


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    nodes: list[Node]
    policies: dict[str, NodePolicy]
    gone: dict[str, str]
    forgotten: dict[str, int]
    namespaces: list[NamespaceObserved]
    workloads: dict[str, WorkloadObserved]
    objects: dict[str, CustomObjectObserved]
    satisfied_gangs: list[str]
    said_gangs: list[GangPhaseChanged]
    said_quotas: list[QuotaStatusComputed]
    said_explanations: dict[str, ScheduleExplanationComputed]
    said_topology: ClusterTopologyComputed | None
    ledgers: list[_Ledger]
    pods: list[_Pod]
    nominations: list[tuple[str, str]]
    evictions: dict[str, str]
    seqs: list[tuple[str, str, int]]
    plugins: dict[str, bytes] = {}


_POD_FIELDS = _Pod.__struct_fields__


def encode_state(state: SchedulerState) -> bytes:
    """The facts in the state, in the order in which pods were submitted; `load_state` is the inverse."""
    state.fold_early()
    body = _Body(
        position=state.position,
        nodes=list(state.node_objects.values()),
        policies=state.policies,
        gone=state.node_gone_by,
        forgotten=state.forgotten,
        namespaces=list(state.namespaces.values()),
        workloads=state.workloads,
        objects=state.objects,
        satisfied_gangs=state.cluster.gangs.roster.satisfied_groups(),
        said_gangs=[state.said.gangs[gang_id] for gang_id in sorted(state.said.gangs)],
        said_quotas=[state.said.quotas[name] for name in sorted(state.said.quotas)],
        said_explanations=state.explanations.said,
        said_topology=state.said.topology,
        ledgers=[
            _Ledger(
                node=node,
                seq=ledger.seq,
                pods={
                    uid: (dict(holding.demand.requests), holding.demand.non_zero)
                    for uid, holding in ledger.holdings.items()
                    if holding.sources & Source.LOGGED
                },
            )
            for node, ledger in state.ledgers.items()
        ],
        pods=[_Pod(**{name: getattr(pod, name) for name in _POD_FIELDS}) for pod in state.pods.values()],
        nominations=[(uid, node) for uid, node, _ in state.nominations.items()],
        evictions=state.evictions,
        plugins={key: plugin.facts() for key, plugin in state.frameworks.folding.items()},
        seqs=[(ref.kind, ref.id, seq) for ref, seq in state.notices.seqs.items()],
    )
    return codec.encode(body)


def load_state(state: SchedulerState, data: bytes) -> None:
    """Fill an empty state with the facts of a snapshot.

    raises    codec.DecodeError for bytes of another schema; AssertionError when the state is not empty
    """
    assert state.position == 0 and not state.pods, "a snapshot is loaded into an empty state only"  # noqa: PT018
    body = codec.decode(data, _Body)
    state.position = body.position
    for key, plugin in state.frameworks.folding.items():
        plugin.restore(body.plugins[key])
    state.forgotten.update(body.forgotten)
    state.node_gone_by.update(body.gone)
    state.evictions.update(body.evictions)
    state.notices.seqs.update({AggregateRef(kind, id_): seq for kind, id_, seq in body.seqs})
    for namespace in body.namespaces:
        state.put_namespace(namespace)
    for uid, workload in body.workloads.items():
        state.put_workload(uid, workload)
    state.policies.update(body.policies)
    for node in body.nodes:
        state.put_node(node)
    for ref_id, custom in body.objects.items():
        state.put_object(ref_id, custom)
    for phase in body.said_gangs:
        state.said.gang_is(phase, state.cluster.gangs.roster)
    state.said.quotas.update({status.name: status for status in body.said_quotas})
    state.explanations.said.update(body.said_explanations)
    state.said.topology = body.said_topology
    with state.cluster.quotas.many_pods():
        for saved in body.pods:
            _load_pod(state, saved)
    state.cluster.gangs.roster.satisfy(body.satisfied_gangs)
    for ledger in body.ledgers:
        _load_ledger(state, ledger)
    for uid, node in body.nominations:
        if uid in state.pods:
            state.nominate(state.pods[uid], node)
    for pod in list(state.pods.values()):
        if pod.bound_node and pod.subject is not None:
            state.ledgers.hold(pod.bound_node, pod.occupant(), Source.BOUND)
        if pod.node:
            state.bound(pod, pod.node)
        state.settle(pod, pod.trigger or pod.spec_event)


def _load_pod(state: SchedulerState, saved: _Pod) -> None:
    fields: dict[str, Any] = msgspec.structs.asdict(saved)
    pod = state.pods[saved.uid] = PodRecord(**fields)
    if saved.pod is not None:
        try:
            state.describe(pod, saved.pod, saved.known_since)
        except InvalidInput:
            pod.subject = None


def _load_ledger(state: SchedulerState, ledger: _Ledger) -> None:
    state.ledgers.advance(ledger.node, ledger.seq)
    for uid, (requests, (cpu_milli, memory_bytes)) in ledger.pods.items():
        pod = state.pods.get(uid)
        known = pod.occupant() if pod is not None and pod.subject is not None else None
        if (
            known is not None
            and known.demand.requests == requests
            and known.demand.non_zero == (cpu_milli, memory_bytes)
        ):
            occupant = known
        else:
            demand = state.nodes.demand(requests, {CPU: cpu_milli, MEMORY: memory_bytes})
            occupant = Occupant(uid, demand) if known is None else msgspec.structs.replace(known, demand=demand)
        state.ledgers.hold(ledger.node, occupant, Source.LOGGED)


def schema_fingerprint(plugins: Iterable[str] = ()) -> str:
    """Digest of the schema of these snapshots: one taken under another is not loaded.

    plugins    those with a state of their own (keys of `Frameworks.folding`): a new one has to see the whole log
    """
    schema, components = msgspec.json.schema_components([_Body])
    description = codec.encode_canonical({"schema": list(schema), "components": components, "plugins": sorted(plugins)})
    return hashlib.blake2b(description, digest_size=16).hexdigest()
