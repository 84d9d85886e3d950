"""Compute the overcommitted resources of a node, and decide whether to publish them.

If overcommit is disabled, or the node has no fresh report, the resources are withdrawn. Otherwise batch and mid
resources are computed from the report, and batch resources for each NUMA zone. Cpu is normalized, and the amounts
that other systems hold are deducted. The result is published if it is the first one, if a resource changed by more
than the threshold, or if the published one is old and differs.

Source:
    manager spec, 5.1 as a pure function, 5.2, 5.8, 5.9
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from koordcore.events.nodepolicy import NodeOvercommitComputed, ZoneOvercommit
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol import resource_names as names
from koordcore.protocol.config.sections import ColocationStrategy
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.values import codec

from koord_manager.domain.cluster import amounts
from koord_manager.domain.cluster.nodes import GPU_RESOURCES, is_told
from koord_manager.domain.controller_names import BATCH, MID
from koord_manager.domain.controllers.configuration import NodeInputs
from koord_manager.domain.controllers.node_resources.batch import (
    Batch,
    PublishedBatch,
    compute_batch,
    normalized,
    publish_batch,
)
from koord_manager.domain.controllers.node_resources.mid import Mid, compute_mid
from koord_manager.domain.controllers.node_resources.zones import compute_zones, zone_names

COMPARED: Final = (
    names.MID_CPU,
    names.MID_MEMORY,
    names.BATCH_CPU,
    names.BATCH_MEMORY,
    *GPU_RESOURCES,
    names.RDMA,
)
"""Resources whose change causes a write; native cpu and memory are the kubelet's."""


class SyncNeed(NamedTuple):
    changed: tuple[str, ...]  # Names of the resources that changed by more than the threshold
    expired: bool  # Whether the last publication is older than the limit, or nothing was published


def sync_need(
    old: Mapping[str, int],
    new: Mapping[str, int],
    *,
    diff_threshold: float,
    update_threshold_seconds: float,
    seconds_since_last: float | None,
) -> SyncNeed:
    """Compare published resources of a node with newly computed ones (in milli-units). Return the reasons to publish.

    Args:
        diff_threshold: Share of the old amount, such as 0.1. Only a larger change is a reason to publish.
        update_threshold_seconds: Age from which the last publication is too old.
        seconds_since_last: None if there was no publication.

    Source: manager spec, 5.8; vectors manager/need_sync.
    """
    changed = tuple(name for name in COMPARED if differs(old.get(name), new.get(name), diff_threshold))
    return SyncNeed(changed, seconds_since_last is None or seconds_since_last > update_threshold_seconds)


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Return whether an amount appears, disappears, or changes by more than `threshold` times the old amount."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * threshold


_MILLI = 1000


class Overcommit(NamedTuple):
    # Event that publishes them, or None if the published ones are up to date.
    event: NodeOvercommitComputed | None = None
    batch: Batch | None = None  # Batch resources, or None if they are withdrawn
    mid: Mid | None = None  # Mid resources, or None if they are withdrawn


def degradation(report: NodeUsageReported | None, strategy: ColocationStrategy, now: datetime) -> str | None:
    """Return the reason why the usage report of a node cannot be used (missing or too old), or None if it is usable.

    A report whose age is exactly `degradeTimeMinutes` can be used (manager spec, 5.2).
    """
    if report is None or report.node_usage is None:
        return "degraded: no metric"
    age = (now - datetime.fromisoformat(report.updated_at)).total_seconds()
    return "degraded: metric expired" if age > strategy.degrade_time_minutes * 60 else None


def overcommit_event(at: NodeInputs) -> NodeOvercommitComputed | None:
    return overcommit(at).event


def overcommit(at: NodeInputs) -> Overcommit:
    """Compute the overcommitted resources of a node, and the event that publishes them if a publication is due.

    For a node without capacity, the result is empty: nothing is published or withdrawn. If overcommit is disabled or
    there is no fresh report, the event withdraws what is published.
    """
    strategy, plugins, report = at.colocation, at.policies.plugins, at.report
    capacity = amounts.node_capacity(at.node)
    if capacity is None:
        return Overcommit()
    withdrawn = "disabled" if not strategy.enable else degradation(report, strategy, at.now)
    if withdrawn is not None or report is None:
        return Overcommit(_withdrawal(at, strategy, withdrawn or "disabled"))
    uses = list(amounts.high_priority_pods(at.view.pods_with_facts(at.token), report))
    batch = mid = None
    if BATCH in plugins:
        batch = compute_batch(at.node, capacity, uses, report, strategy)
    if MID in plugins:
        used = amounts.amount_of_usage(report.node_usage)
        mid = compute_mid(at.node, capacity, uses, report, used, strategy)
    computed = amounts.Amount(batch.cpu_milli, batch.memory_bytes) if batch else None
    published = publish_batch(computed, at.normalization, at.node.metadata.annotations)
    zones = _zones(at, strategy, report, uses) if batch else {}
    reason, changed = _reason(at, strategy, published, mid, zones)
    if reason is None:
        return Overcommit(None, batch, mid)
    event = NodeOvercommitComputed(
        batch_cpu_milli=published.batch.cpu if published.batch else None,
        batch_memory_bytes=published.batch.memory if published.batch else None,
        mid_cpu_milli=mid.cpu_milli if mid else None,
        mid_memory_bytes=mid.memory_bytes if mid else None,
        reason=reason,
        changed=changed,
        terms=batch.terms if batch else {},
        mid_terms=mid.terms if mid else {},
        normalization=at.normalization or "",
        origin={BATCH_CPU: published.origin.cpu, BATCH_MEMORY: published.origin.memory},
        third_party={
            name: amount
            for name, amount in zip((BATCH_CPU, BATCH_MEMORY), published.third_party, strict=True)
            if amount
        },
        zones=zones,
        metric_updated_at=report.updated_at,
        strategy=fingerprint(strategy),
        config_version=at.policies.version,
        based_on=at.based_on,
    )
    return Overcommit(event, batch, mid)


def fingerprint(strategy: ColocationStrategy) -> str:
    """Return eight hexadecimal digits of a hash of a colocation strategy (manager spec, 17.3)."""
    return hashlib.blake2b(codec.encode_canonical(strategy), digest_size=4).hexdigest()


def _withdrawal(at: NodeInputs, strategy: ColocationStrategy, reason: str) -> NodeOvercommitComputed | None:
    published = at.published
    if published is None or (published.batch_cpu_milli is None and published.mid_cpu_milli is None):
        return None
    return NodeOvercommitComputed(
        reason=reason,
        zones={name: ZoneOvercommit() for name in zone_names(at.view.topology(at.token))},
        metric_updated_at=at.report.updated_at if at.report else "",
        strategy=fingerprint(strategy),
        config_version=at.policies.version,
        based_on=at.based_on,
    )


def _zones(
    at: NodeInputs, strategy: ColocationStrategy, report: NodeUsageReported, uses: list[amounts.PodUse]
) -> dict[str, ZoneOvercommit]:
    topology = at.view.topology(at.token)
    computed = compute_zones(at.node, topology, uses, report, strategy) if topology is not None else None
    return {
        name: ZoneOvercommit(normalized(zone.cpu_milli, at.normalization), zone.memory_bytes)
        for name, zone in (computed or {}).items()
    }


def _reason(
    at: NodeInputs,
    strategy: ColocationStrategy,
    batch: PublishedBatch,
    mid: Mid | None,
    zones: dict[str, ZoneOvercommit],
) -> tuple[str | None, list[str]]:
    """Return the reason to publish and the changed resources; (None, []) if the published ones are up to date."""
    published = at.published
    if batch.batch is None and mid is None:
        return None, []
    if published is None or (published.batch_cpu_milli is None and published.mid_cpu_milli is None):
        return "first", []
    if not is_told(at.view.state, at.token, published, NodeOvercommitComputed):
        return "first", []
    new = _milli_units(batch.batch.cpu if batch.batch else None, batch.batch.memory if batch.batch else None)
    new |= _milli_units(mid.cpu_milli if mid else None, mid.memory_bytes if mid else None, mid=True)
    old = _milli_units(published.batch_cpu_milli, published.batch_memory_bytes)
    old |= _milli_units(published.mid_cpu_milli, published.mid_memory_bytes, mid=True)
    need = sync_need(
        old,
        new,
        diff_threshold=strategy.resource_diff_threshold,
        update_threshold_seconds=strategy.update_time_threshold_seconds,
        seconds_since_last=(at.now - datetime.fromisoformat(published.computed_at)).total_seconds(),
    )
    changed = [*need.changed, *_changed_zones(published.zones, zones, strategy.resource_diff_threshold)]
    if changed:
        return "changed", changed
    # written again only when there is something to say: an equal value in the log tells nobody anything
    if need.expired and (old != new or published.zones != zones):
        return "refreshed", []
    return None, []


def _milli_units(cpu: int | None, memory: int | None, *, mid: bool = False) -> dict[str, int]:
    names = (MID_CPU, MID_MEMORY) if mid else (BATCH_CPU, BATCH_MEMORY)
    return {name: amount * _MILLI for name, amount in zip(names, (cpu, memory), strict=True) if amount is not None}


def _changed_zones(old: dict[str, ZoneOvercommit], new: dict[str, ZoneOvercommit], threshold: float) -> list[str]:
    return [
        name
        for name, zone in new.items()
        if (before := old.get(name)) is None
        or differs(before.batch_cpu_milli, zone.batch_cpu_milli, threshold)
        or differs(before.batch_memory_bytes, zone.batch_memory_bytes, threshold)
    ]
