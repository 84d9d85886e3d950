"""Compares scheduler states that must have the same facts, for example one of a snapshot and one that was folded again.

A snapshot may contain parts of placements that are behind its position. So two states are compared only after both were
folded up to a fact that the log stored after the snapshot was taken, for example its last one.

Source:
    event-bus spec, 7 (verified snapshots)
"""

import hashlib
from collections.abc import Iterable, Iterator

from koordcore.values import codec

from koord_scheduler.domain.cluster.ledger import Source
from koord_scheduler.domain.loop.state.state import SchedulerState


def facts_digest(state: SchedulerState) -> str:
    """Return a digest of what a state has of the log: objects, the node of each pod, and what pods hold on each node.

    What depends on the process is left out: queue, assumptions, times of attempts, and what is published when. What
    depends on the configuration is left out, too: ConfigMaps that no plugin reads, and the objects of pods, which
    plugins may transform. Decisions about deleted nodes are kept for a while, so no decision of the manager counts.
    """
    digest = hashlib.blake2b()
    for part in _parts(state):
        digest.update(part)
    return digest.hexdigest()


def _parts(state: SchedulerState) -> Iterator[bytes]:
    mirror = state.mirror
    for table in (mirror.nodes, mirror.namespaces, mirror.workloads, mirror.objects):
        yield from _encoded(table.items())
    yield from _encoded(
        (uid, (pod.namespace, pod.name, pod.seq, pod.node, pod.bound_node, pod.pod is None))
        for uid, pod in state.pods.items()
    )
    for node, ledger in sorted(state.assumed.ledgers.items(), key=lambda each: each[0]):
        logged = [each.before or each.pod_info for each in ledger.holdings.values() if each.sources & Source.LOGGED]
        yield from _encoded((each.uid, (node, each.demand.requests, each.allocation)) for each in logged)


def _encoded(table: Iterable[tuple[str, object]]) -> Iterator[bytes]:
    """Yield the entries of a table as bytes, in the order of their keys."""
    for key, value in sorted(table, key=lambda each: each[0]):
        yield codec.encode_canonical((key, value)) + b"\n"
