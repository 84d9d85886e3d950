"""The canonical hash of the state that places pods: equal for all folds of one log at one position.

It is the sum of one digest per fact, modulo 2^128, so the order in which a state keeps its facts does not matter. A
live state, a fold from zero and a fold from a snapshot have equal hashes (`koord verify`). Two rules follow:

    what a process decided and the log has not confirmed is left out: queue, assumptions, nominations, times of attempts
    what depends on the configuration is left out: ConfigMaps that no plugin reads, pods as plugins transform them

Pods count with what their objects ask for, also if the ledger of the log still has other amounts; both are hashed.

A state may be ahead of its position: the log has confirmed an append that the fold has not reached, or a snapshot
contains such a placement. `newest_fact` tells. Then the hash belongs to no position.

Source: event-bus spec, 7 (verified snapshots); docs/decisions/0003
"""

from collections.abc import Iterator, Mapping

from koordcore.events.envelope import AggregateRef
from koordcore.protocol.reservations import is_reserve_pod
from koordcore.state.cluster import combine_digests, value_digest
from koordcore.values.resources import at_most_max

from koord_scheduler.domain.cluster.ledger import Holding, Source
from koord_scheduler.domain.loop.state.state import SchedulerState


def state_hash(state: SchedulerState) -> str:
    """Return the hash of everything that a state has of the log, 32 hex digits."""
    return combine_digests(value_digest(ref, value) for ref, value in _facts(state))


def newest_fact(state: SchedulerState) -> int:
    """Return the position of the newest fact in the state, which may be greater than that of the fold."""
    return max(
        (
            state.log.position,
            *(pod.seq for pod in state.pods.values()),
            *(ledger.seq for _, ledger in state.assumed.ledgers.items()),
            *state.status.writes.seqs.values(),
            *state.deleted.seqs.values(),
        )
    )


def _facts(state: SchedulerState) -> Iterator[tuple[AggregateRef, object]]:
    mirror = state.mirror
    for section, table in (
        ("node", mirror.nodes),
        ("namespace", mirror.namespaces),
        ("workload", mirror.workloads),
        ("object", mirror.objects),
    ):
        for key, value in table.items():
            yield AggregateRef(section, key), value
    for name, policy in mirror.policies.items():
        if name in mirror.nodes:  # those of deleted nodes are forgotten after a while
            yield AggregateRef("policy", name), policy
    for uid, pod in state.pods.items():
        if pod.pod is not None or pod.node or pod.bound_node:
            known = pod.namespace, pod.name, pod.seq, pod.node, pod.bound_node, pod.pod is None, pod.unhealthy
            yield AggregateRef("pod", uid), known
    for node, ledger in state.assumed.ledgers.items():
        for holding in ledger.holdings.values():
            key = f"{node}.{holding.pod_info.uid}"
            if holding.sources & Source.LOGGED:
                info = holding.logged
                yield AggregateRef("ledger", key), (info.demand.requests, info.allocation)
            if holding.sources & (Source.LOGGED | Source.BOUND):
                yield AggregateRef("counted", key), _counted(state, holding)
    for name, book in state.cluster.books.items():
        for key, value in book.hashed():
            yield AggregateRef(name, key), value


def _counted(state: SchedulerState, holding: Holding) -> Mapping[str, int]:
    """Return the amounts with which a pod counts on its node, without what plugins change in them."""
    pod = state.pods.get(holding.pod_info.uid)
    if pod is None or pod.subject is None or pod.pod is None or is_reserve_pod(pod.pod):
        return holding.demand.requests
    if pod.untransformed is not None:
        return at_most_max(pod.untransformed)
    return holding.demand.requests if state.follows_object(pod) else pod.subject.pod_class.requests
