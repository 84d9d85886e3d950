"""The CPUs that each kind of pods may use, from the annotations of a NodeResourceTopology in a vector."""

from __future__ import annotations

from collections.abc import Mapping

from koord_agent.domain.node.cpu_pools import CpuPools, SharedPool
from koord_agent.domain.strategies.cpuset import CpusetRule, cpuset_rule_of
from koordcore.protocol import keys
from koordcore.protocol.annotations.cpu import parse_kubelet_cpu_manager_policy
from koordcore.protocol.lenient_json import decode
from koordcore.values.cpuset import EMPTY


def cpuset_rule(annotations: Mapping[str, str] | None) -> CpusetRule | None:
    """Return None if there is no NodeResourceTopology."""
    if annotations is None:
        return None
    shared, be = (
        tuple(decode(text, list[SharedPool])) if (text := annotations.get(key)) else ()
        for key in (keys.CPU_SHARED_POOLS, keys.BE_CPU_SHARED_POOLS)
    )
    is_static = parse_kubelet_cpu_manager_policy(annotations).policy == "static"
    return cpuset_rule_of(
        CpuPools(ls=shared, be=be, reserved=EMPTY, system_exclusive=EMPTY, kubelet=()), annotations, is_static=is_static
    )
