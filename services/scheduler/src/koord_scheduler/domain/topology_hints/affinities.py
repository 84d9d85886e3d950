"""The NUMA zones that the pod in Reserve is aligned to.

The plugin that merges the hints reserves first and puts the affinity here. Plugins that reserve after it allocate
inside of these zones. Only one pod at a time is in Reserve.
"""

from koord_scheduler.domain.topology_hints.hints import Zones


class Affinities:
    """The NUMA zones that were chosen for the pod at Reserve. Only one pod is at Reserve at a time."""

    def __init__(self) -> None:
        self._uid = ""
        self._zones: Zones | None = None

    def put(self, uid: str, zones: Zones | None) -> None:
        """Store the zones in which plugins must allocate for the pod; None: it may use the whole node."""
        self._uid, self._zones = uid, zones

    def of(self, uid: str) -> Zones | None:
        """Return the zones in which plugins must allocate for the pod; None: it may use the whole node.

        None also if another pod was stored since.
        """
        return self._zones if uid == self._uid else None
