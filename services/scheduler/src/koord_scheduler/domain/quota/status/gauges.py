"""The quotas as values of two metrics.

Source:
    scheduler-core spec, 15 (elastic_quota_spec, elastic_quota_status)
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol.quota import BUILT_IN, QuotaSpec

from koord_scheduler.domain.quota.status.reports import QuotaReports
from koord_scheduler.domain.quota.tree.books import QuotaBooks

SPEC: Final = "elastic_quota_spec"
STATUS: Final = "elastic_quota_status"


class QuotaGauge(NamedTuple):
    """One value of a quota metric with its labels.

    Attributes:
        metric: `SPEC` or `STATUS`.
        name: Name of the quota.
        tree: Id of its tree; "" for the default tree.
        parent: Name of its parent; "" if it has none.
        field: Which amount of the quota it is, such as "min" or "used".
        value: The amount: cpu in milli-cores, every other resource in whole units.
    """

    metric: str
    name: str
    resource: str
    tree: str
    is_parent: bool
    parent: str
    field: str
    value: int


def quota_gauges(books: QuotaBooks) -> Iterator[QuotaGauge]:
    """Yield the values of elastic_quota_spec and elastic_quota_status, ordered by quota, field and resource.

    If the quota's max names a resource that no pod uses, its status has the value 0.
    """
    reports = QuotaReports(books)
    for name in books.names():
        node = books.forest.nodes[name]
        parent = node.parent.name if node.parent is not None else ""
        for metric, field, amounts in _fields(node.spec, reports.status_of(name)):
            for resource in sorted(amounts):
                yield QuotaGauge(
                    metric, name, resource, node.tree, node.spec.is_parent, parent, field, amounts[resource]
                )


def _fields(spec: QuotaSpec, status: QuotaStatusComputed) -> Iterator[tuple[str, str, Mapping[str, int]]]:
    yield SPEC, "min", spec.min
    yield SPEC, "max", spec.max
    yield SPEC, "sharedWeight", spec.weight
    if spec.is_root:
        yield SPEC, "unschedulable-resource", spec.unschedulable or {}
    zeros = dict.fromkeys(spec.max, 0)
    yield STATUS, "used", zeros | status.used
    yield STATUS, "runtime", zeros | status.runtime if spec.name not in BUILT_IN else status.runtime
    yield STATUS, "request", zeros | status.request
    yield STATUS, "child-request", zeros | status.child_request
    yield STATUS, "guaranteed", zeros | status.guaranteed
    yield STATUS, "allocated", zeros | status.allocated
    yield STATUS, "non-preemptible-request", zeros | status.non_preemptible_request
    yield STATUS, "non-preemptible-used", zeros | status.non_preemptible_used
