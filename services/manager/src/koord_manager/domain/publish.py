"""When a node's batch resources are published anew, and with which reason.

source    manager spec, 5.2, 5.5, 5.8, 5.9
"""

from collections.abc import Iterable
from datetime import datetime

from koordcore.events.envelope import BasedOn
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.config.typed import ColocationStrategy
from koordcore.protocol.objects import Node, Pod
from koordcore.state.aggregates import NodePolicyState
from koordcore.values.quantity import parse_milli, parse_value

from koord_manager.domain.overcommit import Amount, compute_batch


def degradation(report: NodeUsageReported | None, strategy: ColocationStrategy, now: datetime) -> str | None:
    """Why the node's report cannot be relied on; None when it can. Equality with the limit is still fresh.

    source    manager spec, 5.2
    """
    if report is None or report.node_usage is None:
        return "degraded: no metric"
    age = (now - datetime.fromisoformat(report.updated_at)).total_seconds()
    return "degraded: metric expired" if age > strategy.degrade_time_minutes * 60 else None


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Whether a published amount has to be written again: it appears, disappears, or moved by more than the share.

    source    manager spec, 5.8: |new - old| > old * threshold, strict, relative to the old value
    """
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * threshold


def node_capacity(node: Node) -> Amount | None:
    """Capacity of the node; None when it has not reported any."""
    capacity = node.status.capacity
    if "cpu" not in capacity or "memory" not in capacity:
        return None
    return Amount(parse_milli(capacity["cpu"]), parse_value(capacity["memory"]))


def decide_overcommit(
    node: Node,
    pods: Iterable[tuple[str, Pod]],
    report: NodeUsageReported | None,
    strategy: ColocationStrategy,
    published: NodePolicyState | None,
    now: datetime,
    *,
    config_version: int,
    based_on: BasedOn,
) -> NodeOvercommitComputed | None:
    """The event that publishes a node's batch resources; None when what is published still stands.

    published   what the log says now, None before the first time
    now         the manager's clock; recorded in the event's envelope

    source    manager spec, 5.1 as a pure function
    """
    capacity = node_capacity(node)
    if capacity is None:
        return None
    has_batch = published is not None and published.batch_cpu_milli is not None
    withdrawn = "disabled" if not strategy.enable else degradation(report, strategy, now)
    if withdrawn is not None or report is None:
        if not has_batch:
            return None
        return NodeOvercommitComputed(reason=withdrawn or "disabled", config_version=config_version, based_on=based_on)
    batch = compute_batch(node, capacity, pods, report, strategy)
    reason = _reason_to_publish(batch.cpu_milli, batch.memory_bytes, strategy, published if has_batch else None, now)
    if reason is None:
        return None
    return NodeOvercommitComputed(
        batch_cpu_milli=batch.cpu_milli,
        batch_memory_bytes=batch.memory_bytes,
        reason=reason,
        terms=batch.terms,
        metric_updated_at=report.updated_at,
        config_version=config_version,
        based_on=based_on,
    )


def _reason_to_publish(
    cpu_milli: int, memory_bytes: int, strategy: ColocationStrategy, published: NodePolicyState | None, now: datetime
) -> str | None:
    if published is None:
        return "first"
    threshold = strategy.resource_diff_threshold
    if differs(published.batch_cpu_milli, cpu_milli, threshold) or differs(
        published.batch_memory_bytes, memory_bytes, threshold
    ):
        return "changed"
    age = (now - datetime.fromisoformat(published.computed_at)).total_seconds()
    if age > strategy.update_time_threshold_seconds and (published.batch_cpu_milli, published.batch_memory_bytes) != (
        cpu_milli,
        memory_bytes,
    ):
        return "refreshed"
    return None
