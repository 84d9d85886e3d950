"""The live cluster as the descheduler sees it: the folded log, and the newest usage report of each node."""

from contextlib import suppress

from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koordcore.events.observation import usage_report
from koordcore.events.registry import UnreadableEvent

from koordctl.access.clock import run_clock
from koordctl.access.folding import archived_cluster, fold_to
from koordctl.access.log import OpenLog


async def live_builder(log: OpenLog) -> ViewBuilder:
    """The folded log at its last position, with the newest usage report of each node.

    Raises:
        LogTrouble: An event cannot be decoded.
    """
    head = await log.bus.events.head()
    builder = ViewBuilder()
    saved = await archived_cluster(log.bus, head.last_seq)
    builder.load((await fold_to(log.bus.events, head.last_seq, state=saved)).state)
    for stored in await log.bus.observations.latest(builder.node_refs()):
        with suppress(UnreadableEvent):  # as the service, which counts the node as silent
            if (report := usage_report(stored)) is not None:
                builder.observe(stored.ref.id, report, stored.seq)
    return builder


async def live_cluster(log: OpenLog) -> ClusterView:
    return (await live_builder(log)).view(run_clock().now().timestamp())
