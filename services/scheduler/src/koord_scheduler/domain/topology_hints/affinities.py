"""The NUMA zones that pods in reserve are aligned to.

The plugin that merges the hints reserves first and puts the affinity here. Plugins that reserve after it allocate
inside of these zones.
"""

from koord_scheduler.domain.topology_hints.hints import Zones


class Affinities:
    """NUMA affinities by pod, from Reserve until the pod is on its node or has lost it."""

    def __init__(self) -> None:
        self._zones: dict[str, Zones] = {}

    def put(self, uid: str, zones: Zones) -> None:
        """Align the pod to these zones."""
        self._zones[uid] = zones

    def drop(self, uid: str) -> None:
        """Forget the affinity of the pod; no-op if it has none."""
        self._zones.pop(uid, None)

    def of(self, uid: str) -> Zones | None:
        """Return the zones that the pod is aligned to; None: it may use the whole node."""
        return self._zones.get(uid)
