"""The scheduler's state as bytes, so that a restart need not fold the whole log.

Only facts are kept: what the log and the API say. Assumptions in flight, cached views, backoffs and the order among
waiting pods of equal priority are not; a restored scheduler attempts every pod without a node anew.

source    event-bus spec, 6
"""

import hashlib
from typing import Any

import msgspec
from koordcore.protocol.objects import Pod, Taint
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.columns import NodeShape
from koord_scheduler.domain.ledger import Source
from koord_scheduler.domain.occupancy import Occupant
from koord_scheduler.domain.pods import PodRecord
from koord_scheduler.domain.state import BatchResources, SchedulerState


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node as columns need it; `batch`: overcommitted resources, None: never computed."""

    name: str
    allocatable: dict[str, int]
    labels: dict[str, str]
    taints: list[Taint]
    unschedulable: bool


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


class _Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says about one node: uid -> (requests, cpu and memory with defaults)."""

    node: str
    seq: int
    pods: dict[str, tuple[dict[str, int], tuple[int, int]]]


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    nodes: list[_Node]
    batch: dict[str, tuple[int | None, int | None]]
    gone: dict[str, str]
    forgotten: dict[str, int]
    ledgers: list[_Ledger]
    pods: list[_Pod]


def encode_state(state: SchedulerState) -> bytes:
    """The facts in the state, in the order in which pods were submitted; `load_state` is the inverse."""
    body = _Body(
        position=state.position,
        nodes=[
            _Node(
                name=name,
                allocatable=dict(shape.allocatable),
                labels=dict(shape.labels),
                taints=list(shape.taints),
                unschedulable=shape.unschedulable,
            )
            for name, shape in state.shapes.items()
        ],
        batch={name: (batch.cpu_milli, batch.memory_bytes) for name, batch in state.batch.items()},
        gone=state.node_gone_by,
        forgotten=state.forgotten,
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
        pods=[
            _Pod(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                pod=pod.pod,
                trigger=pod.trigger,
                spec_event=pod.spec_event,
                submitted_at=pod.submitted_at,
                traceparent=pod.traceparent,
                tracestate=pod.tracestate,
                seq=pod.seq,
                node=pod.node,
                bound_node=pod.bound_node,
            )
            for pod in state.pods.values()
        ],
    )
    return codec.encode(body)


def load_state(state: SchedulerState, data: bytes) -> None:
    """Fill an empty state with the facts of a snapshot.

    raises    codec.DecodeError for bytes of another schema; AssertionError when the state is not empty
    """
    assert state.position == 0 and not state.pods, "a snapshot is loaded into an empty state only"  # noqa: PT018
    body = codec.decode(data, _Body)
    state.position = body.position
    state.forgotten.update(body.forgotten)
    state.node_gone_by.update(body.gone)
    for name, (cpu_milli, memory_bytes) in body.batch.items():
        state.batch[name] = BatchResources(cpu_milli, memory_bytes)
    for node in body.nodes:
        shape = NodeShape(
            allocatable=node.allocatable,
            labels=node.labels,
            taints=tuple(node.taints),
            unschedulable=node.unschedulable,
        )
        state.put_node(node.name, shape)
    for one in body.pods:
        state.pods[one.uid] = _record(state, one)
    for ledger in body.ledgers:
        state.ledgers.advance(ledger.node, ledger.seq)
        for uid, (requests, (cpu_milli, memory_bytes)) in ledger.pods.items():
            demand = state.nodes.demand(requests, {"cpu": cpu_milli, "memory": memory_bytes})
            pod = state.pods.get(uid)
            subject = pod.subject if pod is not None else None
            occupant = Occupant(uid, demand, subject.template, subject.kind) if subject else Occupant(uid, demand)
            state.ledgers.hold(ledger.node, occupant, Source.LOGGED)
    for pod in list(state.pods.values()):
        if pod.bound_node and pod.subject is not None:
            state.ledgers.hold(pod.bound_node, pod.occupant(), Source.BOUND)
        state.settle(pod, pod.trigger or pod.spec_event)


def _record(state: SchedulerState, saved: _Pod) -> PodRecord:
    subject = None
    if saved.pod is not None:
        try:
            subject = state.templates.read(saved.pod).subject
        except InvalidInput:
            subject = None
    fields: dict[str, Any] = msgspec.structs.asdict(saved)
    return PodRecord(subject=subject, **fields)


def schema_fingerprint() -> str:
    """Digest of the schema of these snapshots: one taken under another is not loaded."""
    schema, components = msgspec.json.schema_components([_Body])
    description = codec.encode_canonical({"schema": list(schema), "components": components})
    return hashlib.blake2b(description, digest_size=16).hexdigest()
