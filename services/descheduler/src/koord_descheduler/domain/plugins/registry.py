"""The built-in plugins by name. This is the only module that imports them."""

from typing import Final

from koord_descheduler.domain.drain import plugin as drain
from koord_descheduler.domain.framework.registry import Registry, registry_of
from koord_descheduler.domain.jobs import plugin as migration_controller
from koord_descheduler.domain.plugins import custom_priority, node_reservation, scale_down_binpack
from koord_descheduler.domain.plugins.fragmentation_aware import plugin as fragmentation_aware
from koord_descheduler.domain.plugins.low_node_load import plugin as low_node_load
from koord_descheduler.domain.plugins.upstream import (
    default_evictor,
    failed_pods,
    high_node_utilization,
    interpod_anti_affinity,
    low_node_utilization,
    node_affinity,
    node_taints,
    pod_lifetime,
    remove_duplicates,
    too_many_restarts,
    topology_spread,
)

BUILT_IN: Final[Registry] = registry_of(
    [
        default_evictor.KIND,
        migration_controller.KIND,
        low_node_load.KIND,
        custom_priority.KIND,
        drain.KIND,
        fragmentation_aware.KIND,
        node_reservation.KIND,
        scale_down_binpack.KIND,
        failed_pods.KIND,
        high_node_utilization.KIND,
        interpod_anti_affinity.KIND,
        low_node_utilization.KIND,
        node_affinity.KIND,
        node_taints.KIND,
        pod_lifetime.KIND,
        remove_duplicates.KIND,
        too_many_restarts.KIND,
        topology_spread.KIND,
    ]
)
"""Name of a built-in plugin -> the plugin."""
