"""The live cluster as the descheduler sees it: the folded log, and the newest usage report of each node."""

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.folding import view_of_state
from koord_descheduler.domain.view.metrics import NodeMetric, metric_of_report
from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, name_from_token
from koordcore.state.aggregates import NodeSpecState

from koordctl.access.folding import fold_to
from koordctl.access.log import OpenLog
from koordctl.access.run_clock import run_clock


async def live_cluster(log: OpenLog) -> ClusterView:
    """Return the cluster at the head of the log.

    Raises:
        LogTrouble: An event cannot be decoded.
    """
    head = await log.bus.events.head()
    state = (await fold_to(log.bus.events, head.last_seq)).state
    nodes = [AggregateRef("node", token) for token in state.of_kind(NodeSpecState)]
    metrics: dict[str, NodeMetric] = {}
    for stored in await log.bus.observations.latest(nodes):
        report = CATALOGUE.read(stored)
        metric = metric_of_report(report) if isinstance(report, NodeUsageReported) else None
        if metric is not None:
            metrics[name_from_token(stored.ref.id)] = metric
    return view_of_state(state, metrics, run_clock().now().timestamp())
