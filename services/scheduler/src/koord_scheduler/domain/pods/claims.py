"""The PersistentVolumeClaims of a pod as a value."""

from dataclasses import dataclass

from koordcore.protocol.objects import Pod
from koordcore.protocol.storage.claims import claims_of


@dataclass(frozen=True, slots=True)
class Claims:
    """The PersistentVolumeClaims of a pod: its namespace, their names, and those of ephemeral volumes among them."""

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
