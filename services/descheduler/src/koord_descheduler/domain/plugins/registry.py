"""The built-in plugins by name. This is the only module that imports them."""

from typing import Final

from koord_descheduler.domain.framework.registry import Registry, registry_of
from koord_descheduler.domain.plugins.evictors import default_evictor
from koord_descheduler.domain.plugins.native import (
    custom_priority,
    fragmentation_aware,
    node_reservation,
    scale_down_binpack,
)
from koord_descheduler.domain.plugins.native.low_node_load import plugin as low_node_load
from koord_descheduler.domain.plugins.upstream import node_taints

BUILT_IN: Final[Registry] = registry_of(
    [
        default_evictor.KIND,
        low_node_load.KIND,
        custom_priority.KIND,
        fragmentation_aware.KIND,
        node_reservation.KIND,
        scale_down_binpack.KIND,
        node_taints.KIND,
    ]
)
"""Name of a built-in plugin -> the plugin."""
