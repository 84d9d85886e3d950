"""Changes of claims and volumes that may help waiting pods: the queueing hints of the volume plugins.

Source:
    Kubernetes 1.35, `EventsToRegister` of VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from koord_scheduler.domain.volumes.objects import ClaimKey


@dataclass(slots=True)
class HelpedStorage:
    """The changes that may help, by what a claim must have in common with them.

    Attributes:
        claims: Claims that appeared, changed, or lost a pod that had fixed their volume or node.
        classes: Storage classes that appeared or changed, got a volume or free storage.
        drivers: CSI drivers whose limits on a node, attached volumes or properties changed.
    """

    claims: set[ClaimKey] = field(default_factory=set[ClaimKey])
    classes: set[str] = field(default_factory=set[str])
    drivers: set[str] = field(default_factory=set[str])

    def __bool__(self) -> bool:
        """Return whether anything has changed."""
        return bool(self.claims or self.classes or self.drivers)

    def may_help(self, claims: Iterable[tuple[ClaimKey, str, str]]) -> bool:
        """Return whether a change may help a pod.

        Args:
            claims: Key, storage class and CSI driver of each claim of the pod; "" for none.
        """
        return any(
            key in self.claims or storage_class in self.classes or driver in self.drivers
            for key, storage_class, driver in claims
        )
