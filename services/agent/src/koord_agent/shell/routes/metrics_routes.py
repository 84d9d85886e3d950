"""GET /internal-metrics and /external-metrics: two parts of /metrics, as in Koordinator's agent.

External metrics are those of pods and their resources. Internal metrics are all others.

Source: agent spec, 1, 21.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

EXTERNAL: Final = frozenset(
    f"koordlet_{name}"
    for name in (
        "node_resource_allocatable",
        "node_priority_resource_reclaimable",
        "node_resource_priority_reclaimable_status",
        "container_resource_requests",
        "container_resource_limits",
        "container_cpi",
        "container_psi",
        "pod_psi",
        "resctrl_llc_occupancy",
        "resctrl_memory_bandwidth",
        "tsdb_series",
        "tsdb_size_bytes",
    )
)


class _Half(Collector):
    def __init__(self, registry: CollectorRegistry, *, external: bool) -> None:
        self._registry = registry
        self._external = external

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            if (family.name in EXTERNAL) is self._external:
                yield family


def metrics_routes(registry: CollectorRegistry) -> list[Route]:
    """Return the routes GET /internal-metrics and GET /external-metrics.

    Args:
        registry: Metrics of the process.
    """

    def page(*, external: bool) -> Response:
        half = CollectorRegistry(auto_describe=False)
        half.register(_Half(registry, external=external))
        return Response(generate_latest(half), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def internal(_request: Request) -> Response:
        return page(external=False)

    def outward(_request: Request) -> Response:
        return page(external=True)

    return [
        Route("/internal-metrics", internal, methods=["GET"]),
        Route("/external-metrics", outward, methods=["GET"]),
    ]
