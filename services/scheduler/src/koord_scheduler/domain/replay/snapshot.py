"""The scheduler's state as bytes, so that a restart does not have to fold the whole log.

Only folded facts are stored, from the log and the API server. Assumptions in flight, cached views, back-offs and the
order of waiting pods of equal priority are not; a restored scheduler attempts every pod without a node again. Books
of features are computed again from objects, nodes and pods. Only what these do not tell is stored in addition, by the
name of the book, and so is the state of folding plugins.

Source: event-bus spec, 6
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from operator import attrgetter
from typing import Any, Final

import msgspec
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import ConfigAccepted, CustomObjectObserved, NamespaceObserved, WorkloadObserved
from koordcore.events.pod import UnhealthyDevice
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values import codec
from koordcore.values.allocation import NOTHING, Allocation
from koordcore.values.codec import array_pieces, mapping_pieces, object_pieces, schema_digest
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.ledger import Source
from koord_scheduler.domain.cluster.node_facts import NodePolicy
from koord_scheduler.domain.cluster.record import PodRecord, is_finished
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.loop.commit.work import pod_ref
from koord_scheduler.domain.loop.folding.log import fold_early, resume
from koord_scheduler.domain.loop.folding.objects import put_config, put_namespace, put_node, put_object, put_workload
from koord_scheduler.domain.loop.folding.pods import describe, hold_bound
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.loop.status.schedule_explanations import KIND
from koord_scheduler.domain.replay.state_hash import newest_fact


class _Pod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The fields of `PodRecord` without the work in progress, and what only its history tells."""

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
    left_node: str = ""
    bind_failed: int = 0
    bind_failures: int = 0
    untransformed: dict[str, int] | None = None
    unhealthy: tuple[UnhealthyDevice, ...] = ()
    known_since: float = 0.0
    placed_at: float = 0.0
    history: dict[str, str] = {}  # Name of a book -> what an ended pod itself does not tell (`Book.pod_facts`)


class _Ledger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The pods that the log has on one node."""

    node: str
    seq: int
    pods: dict[str, tuple[dict[str, int], tuple[int, int]]]  # Uid -> (requests, cpu and memory with defaults)
    allocations: dict[str, Allocation] = {}  # Uid -> allocation


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    gone: dict[str, str]
    forgotten: dict[str, int]
    nodes: list[Node]
    policies: dict[str, NodePolicy]
    namespaces: list[NamespaceObserved]
    workloads: dict[str, WorkloadObserved]
    configs: dict[str, ConfigAccepted]
    objects: dict[str, CustomObjectObserved]
    said_explanations: dict[str, ScheduleExplanationComputed]
    ledgers: list[_Ledger]
    pods: list[_Pod]
    nominations: list[tuple[str, str]]
    evictions: dict[str, str]
    seqs: list[tuple[str, str, int]]
    books: dict[str, msgspec.Raw]
    plugins: dict[str, bytes]


_fields_of = attrgetter(*(name for name in _Pod.__struct_fields__ if name != "history"))
_OF_PODS: Final = ("pod", "podspec")
_LEDGERS_IN_A_PIECE: Final = 10


class Picture:
    """A consistent snapshot of the scheduler's state that is written piece by piece while the state changes.
    `load_state` is the inverse. Before an event about a pod is folded meanwhile, the caller must call `keep`.
    Placements that are stored meanwhile may or may not be in the snapshot. They are behind `position`, so a restored
    state folds them anyway, and the last position of each pod and node tells whether they are included already.
    """

    def __init__(self, state: SchedulerState) -> None:
        fold_early(state)
        self._state = state
        self._kept: dict[str, _Pod] = {}
        # Last first: what is taken down is let go one by one, not all at the end.
        self._pods = list(reversed(state.pods.values()))
        self._ledgers = [
            (node, ledger.seq, list(ledger.holdings.values())) for node, ledger in state.assumed.ledgers.items()
        ]
        under_way = state.status.writes.under_way()
        self._members = {
            "position": _whole(state.log.position),
            "gone": mapping_pieces(dict(state.mirror.node_gone_by).items()),
            "forgotten": mapping_pieces(dict(state.deleted.seqs).items()),
            "nodes": array_pieces(list(state.mirror.nodes.values())),
            "policies": mapping_pieces(dict(state.mirror.policies).items()),
            "namespaces": array_pieces(list(state.mirror.namespaces.values())),
            "workloads": mapping_pieces(dict(state.mirror.workloads).items()),
            "configs": mapping_pieces(dict(state.mirror.configs).items()),
            "objects": mapping_pieces(dict(state.mirror.objects).items()),
            "said_explanations": mapping_pieces(
                {
                    id_: each
                    for id_, each in state.status.explanations.published.items()
                    if AggregateRef(KIND, id_) not in under_way
                }.items()
            ),
            "ledgers": array_pieces(self._saved_ledgers(), size=_LEDGERS_IN_A_PIECE),
            "pods": array_pieces(self._saved_pods()),
            # These follow from what is known of pods, so they are taken down after the last of them.
            "nominations": array_pieces(self._nominations()),
            "evictions": mapping_pieces(self._evictions()),
            "seqs": array_pieces([(ref.kind, ref.id, seq) for ref, seq in state.status.writes.seqs.items()]),
            "books": object_pieces({name: book.facts(under_way) for name, book in state.cluster.books.items()}),
            "plugins": _whole({key: plugin.facts() for key, plugin in state.frameworks.folding.items()}),
        }

    def keep(self, ref: AggregateRef) -> None:
        """Store the present state of the pod of this aggregate in the snapshot, because an event changes the pod next.
        No-op for other aggregates, and for pods that are written already.
        """
        if ref.kind in _OF_PODS and ref.id not in self._kept:
            pod = self._state.pods.get(ref.id)
            if pod is not None:
                self._kept[ref.id] = _saved_pod(self._state, pod)

    def pieces(self) -> Iterator[bytes]:
        """Yield the parts of the snapshot in order. Joined, they are the snapshot. Call the method only once."""
        return object_pieces(self._members)

    def _saved_pods(self) -> Iterator[_Pod]:
        pods, kept = self._pods, self._kept
        while pods:
            pod = pods.pop()
            yield kept.get(pod.uid) or _saved_pod(self._state, pod)

    def _saved_ledgers(self) -> Iterator[_Ledger]:
        while self._ledgers:
            node, seq, holdings = self._ledgers.pop()
            logged = [each.logged for each in holdings if each.sources & Source.LOGGED]
            pods = {each.uid: (dict(each.demand.requests), each.demand.non_zero) for each in logged}
            allocations = {each.uid: each.allocation for each in logged if each.allocation is not NOTHING}
            yield _Ledger(node=node, seq=seq, pods=pods, allocations=allocations)

    def _nominations(self) -> Iterator[tuple[str, str]]:
        under_way = self._state.status.writes.under_way()
        for uid, node, _ in self._state.nominator.items():
            if pod_ref(uid) not in under_way:
                yield uid, node

    def _evictions(self) -> list[tuple[str, str]]:
        """Return the evictions in the log. Those that are only assumed are requested again after a restart."""
        nominator = self._state.nominator
        return [(uid, reason) for uid, reason in nominator.evictions.items() if uid not in nominator.unsaid]


def _whole(value: object) -> Iterator[bytes]:
    return iter([codec.encode(value)])


def _saved_pod(state: SchedulerState, pod: PodRecord) -> _Pod:
    saved = _Pod(*_fields_of(pod))
    if pod.pod is None or not is_finished(pod.pod):
        return saved
    history = {name: facts for name, book in state.cluster.books.items() if (facts := book.pod_facts(pod.uid))}
    return msgspec.structs.replace(saved, history=history) if history else saved


def load_state(state: SchedulerState, data: bytes) -> None:
    """Fill an empty scheduler state from the bytes of a snapshot. Raises codec.DecodeError: the bytes have another
    schema; AssertionError: the state is not empty.
    """
    assert state.log.position == 0 and not state.pods, "a snapshot is loaded into an empty state only"  # noqa: PT018
    body = codec.decode(data, _Body)
    state.log.position = body.position
    for key, plugin in state.frameworks.folding.items():
        plugin.restore(body.plugins[key])
    state.deleted.seqs.update(body.forgotten)
    state.mirror.node_gone_by.update(body.gone)
    state.nominator.evictions.update(body.evictions)
    state.status.writes.seqs.update({AggregateRef(kind, id_): seq for kind, id_, seq in body.seqs})
    for namespace in body.namespaces:
        put_namespace(state, namespace)
    for uid, workload in body.workloads.items():
        put_workload(state, uid, workload)
    for ref_id, config in body.configs.items():
        put_config(state, ref_id, config)
    state.mirror.policies.update(body.policies)
    for node in body.nodes:
        put_node(state, node)
    for ref_id, custom in body.objects.items():
        put_object(state, ref_id, custom)
    books = state.cluster.books
    for name, facts in body.books.items():
        books[name].restore(bytes(facts))
    state.status.explanations.published.update(body.said_explanations)
    with ExitStack() as many_pods:
        for book in books.values():
            many_pods.enter_context(book.many_pods())
        for saved in body.pods:
            _load_pod(state, saved)
    for ledger in body.ledgers:
        _load_ledger(state, ledger)
    for book in books.values():
        book.restored(state.assumed.ledgers.holders)
    for uid, node in body.nominations:
        if uid in state.pods:
            state.nominator.nominate(state.pods[uid], node)
    for pod in list(state.pods.values()):
        if pod.bound_node and pod.subject is not None:
            hold_bound(state, pod, pod.bound_node)
        if pod.node:
            state.commits.bound(pod, pod.node)
        state.assumed.reconcile(pod, pod.trigger or pod.spec_event)
    resume(state)


def may_start_what_if(state: SchedulerState, position: int) -> bool:
    """Return whether a what-if run that begins behind `position` may start from a loaded state. It must not if a pod
    waits with others, such as its gang: which one the queue holds is not stored. It must not if the state has later
    facts, which were confirmed while the snapshot was written. `state`: the state that `load_state` filled.
    """
    books = state.cluster.books.values()
    waits = any(
        state.queue.get(uid) is not None and any(book.waits_with_others(uid) for book in books) for uid in state.pods
    )
    return not waits and newest_fact(state) <= position


def _load_pod(state: SchedulerState, saved: _Pod) -> None:
    fields: dict[str, Any] = msgspec.structs.asdict(saved)
    del fields["history"]
    pod = state.pods[saved.uid] = PodRecord(**fields)
    if saved.pod is not None:
        state.shared.share_own(saved.pod, saved.uid)
        try:
            describe(state, pod, saved.pod, saved.known_since)
        except InvalidInput:
            pod.subject = None
    for name, facts in saved.history.items():
        state.cluster.books[name].restore_pod(saved.uid, facts)


def _load_ledger(state: SchedulerState, ledger: _Ledger) -> None:
    state.assumed.ledgers.advance(ledger.node, ledger.seq)
    for uid, (requests, (cpu_milli, memory_bytes)) in ledger.pods.items():
        pod = state.pods.get(uid)
        known = pod.pod_info() if pod is not None and pod.subject is not None else None
        if (
            known is not None
            and known.demand.requests == requests
            and known.demand.non_zero == (cpu_milli, memory_bytes)
        ):
            pod_info = known
        else:
            demand = state.nodes.demand(requests, {CPU: cpu_milli, MEMORY: memory_bytes})
            if known is not None:
                pod_info = msgspec.structs.replace(known, demand=demand)
            else:
                pod_info = PodInfo(uid, demand) if pod is None else pod.pod_info_without_object(demand)
        if uid in ledger.allocations:
            pod_info = msgspec.structs.replace(pod_info, allocation=ledger.allocations[uid])
        state.assumed.ledgers.hold(ledger.node, pod_info, Source.LOGGED, state.asked(pod))


def schema_fingerprint(cluster: Cluster, plugins: Iterable[str]) -> str:
    """Return a digest of the snapshot schema with the facts of all books. Snapshots with another one are not loaded.
    `plugins`: keys of `Frameworks.folding`. A new plugin with its own state must fold the whole log.
    """
    types = [book.facts_type for book in cluster.books.values() if book.facts_type is not None]
    return schema_digest([_Body, *types], [*plugins, *cluster.books])
