"""`koord delete`: the facts that remove an object."""

from typing import NamedTuple

from koordcore.events.envelope import Draft

from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.mirrored_kinds import AGGREGATES, deleted, object_of, ref_of_name
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply_custom import delete_custom


class Target(NamedTuple):
    """Kind, namespace and name of an object to delete; the namespace is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str


def decide_delete(view: ManagerView, target: Target, options: Options | None = None) -> list[Draft] | None:
    """Decide `koord delete` of one object: return the facts to append together, or None if the object does not exist.

    The workload controller deletes the pods of a deleted workload. The scheduler returns the resources of a deleted
    pod to its node.

    Args:
        view: The folded state of the cluster.
        target: The object.
        options: Feature gates and flags of admission; None for the defaults.

    Raises:
        InvalidManifest: Admission denies the deletion.
    """
    kind, namespace, name = target
    if kind not in AGGREGATES:
        return delete_custom(view, kind, namespace, name, options or Options())
    ref = ref_of_name(view, kind, namespace, name)
    state = view.state.get(ref) if ref is not None else None
    if ref is None or state is None or object_of(state) is None:
        return None
    return [Draft(ref, deleted(kind, namespace, name), state.seq)]
