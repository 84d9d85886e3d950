"""The PersistentVolumeClaims of a pod as a value."""

from dataclasses import dataclass

from koordcore.protocol.objects import Pod
from koordcore.protocol.storage import claims_of


@dataclass(frozen=True, slots=True)
class Claims:
    """The PersistentVolumeClaims of a pod.

    Attributes:
        namespace: Namespace of the pod and of its claims.
        names: Names of the claims.
        ephemeral: The names that belong to ephemeral volumes.
    """

    namespace: str
    names: tuple[str, ...]
    ephemeral: frozenset[str] = frozenset()


def claims_of_pod(pod: Pod) -> Claims | None:
    """Return the claims of a pod; None if it uses none."""
    found = list(claims_of(pod))
    if not found:
        return None
    names = tuple(dict.fromkeys(name for name, _ in found))
    return Claims(pod.metadata.namespace, names, frozenset(name for name, is_ephemeral in found if is_ephemeral))
