"""The cluster as a fold of the log: `evolve(state, event) -> state` per aggregate, and one canonical hash.

`aggregates` (one state type per kind) -> `evolution` (one evolve function per event) -> `cluster` (all aggregates,
position, hash, snapshot).
"""

from koordcore.state.cluster import ClusterState

__all__ = ["ClusterState"]
