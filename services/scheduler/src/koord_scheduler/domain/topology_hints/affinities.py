"""The NUMA zones that the pod in Reserve is aligned to.

The plugin that merges the hints reserves first and puts the affinity here. Plugins that reserve after it allocate
inside of these zones. Only one pod at a time is in Reserve.
"""

from koord_scheduler.domain.topology_hints.hints import Zones


class Affinities:
    """The NUMA affinity of the pod that was reserved last."""

    def __init__(self) -> None:
        self._uid = ""
        self._zones: Zones | None = None

    def put(self, uid: str, zones: Zones | None) -> None:
        """Align the pod to these zones; None: it may use the whole node."""
        self._uid, self._zones = uid, zones

    def of(self, uid: str) -> Zones | None:
        """Return the zones that the pod is aligned to; None: it may use the whole node."""
        return self._zones if uid == self._uid else None
