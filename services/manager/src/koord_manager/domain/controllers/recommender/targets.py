"""Find the Recommendations that select a pod; results are cached until an object changes.

Source:
    manager spec, 15.1
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

import msgspec
from koordcore.protocol import recommendations
from koordcore.protocol.objects import OwnerReference, Pod, object_from_json
from koordcore.state.aggregates import CustomObjectState, PodSpecState, WorkloadState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.cluster.view import ManagerView

_LONGEST_CHAIN: Final = 4
_MIRRORED_OWNERS: Final = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
}
"""Kinds of owners that the gateway mirrors -> their plural."""


class Wanted(NamedTuple):
    id: str  # Id of its aggregate, `<namespace>=<name>`
    version: int  # Position of the object in the log
    namespace: str
    name: str
    created: str  # Creation time, RFC 3339, or empty
    # The workload or the pods that it selects, or None if the object is not valid.
    target: recommendations.Target | None
    mode: recommendations.UpdateMode  # What is done with the recommended amounts
    policies: dict[str, recommendations.ContainerPolicy]  # Name of a container -> its limits and mode
    fault: str  # Reason why the object is not valid, or empty


def changing(matching: Sequence[Wanted]) -> Wanted | None:
    """Of the Recommendations that select a pod, oldest first, the only one that changes it: the first whose mode is not
    Off.
    """
    return next((wanted for wanted in matching if wanted.mode is not recommendations.UpdateMode.OFF), None)


def read_wanted(id_: str, stored: CustomObjectState) -> Wanted:
    """Parse a stored Recommendation; if it is not valid, the result has the reason in `fault` and no target."""
    namespace, _, name = id_.partition("=")
    try:
        recommendation = object_from_json(stored.object, recommendations.Recommendation)
        meta = recommendation.metadata
        namespace, name = meta.namespace, meta.name
        return Wanted(
            id_,
            stored.seq,
            namespace,
            name,
            meta.creation_timestamp or "",
            recommendations.target_of(recommendation),
            recommendations.update_mode(meta.annotations),
            recommendations.resource_policies(meta.annotations),
            "",
        )
    except (InvalidInput, codec.DecodeError) as error:
        return Wanted(id_, stored.seq, namespace, name, "", None, recommendations.UpdateMode.OFF, {}, str(error))


def owners_of(view: ManagerView, pod: Pod) -> Iterator[OwnerReference]:
    """Yield the controllers of a pod from the log: its controller, that controller's controller, and so on.

    At most four are yielded. The series ends at a controller that the log does not contain.
    """
    references = pod.metadata.owner_references
    for _ in range(_LONGEST_CHAIN):
        owner = next((owner for owner in references if owner.controller), None)
        if owner is None:
            return
        yield owner
        above = view.state.of_kind(WorkloadState).get(owner.uid)
        if above is not None:
            references = above.object.metadata.owner_references
        elif owner.kind in _MIRRORED_OWNERS:
            references = _mirrored_owners(view, pod.metadata.namespace, owner)
        else:
            return


def _mirrored_owners(view: ManagerView, namespace: str, owner: OwnerReference) -> Sequence[OwnerReference]:
    """Return the owners of an owner, or an empty tuple if another object has its name now."""
    stored = view.custom(_MIRRORED_OWNERS[owner.kind], namespace, owner.name)
    metadata = stored.object.get("metadata") if stored is not None else None
    if not isinstance(metadata, dict):
        return ()
    written = cast("dict[str, object]", metadata)
    if written.get("uid") != owner.uid:
        return ()
    try:
        return msgspec.convert(written.get("ownerReferences") or [], list[OwnerReference])
    except msgspec.ValidationError:
        return ()


class Targets:
    """All Recommendations by namespace. For each pod, the Recommendations that select it are cached."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._wanted: dict[str, Wanted] = {}
        self._by_namespace: dict[str, list[Wanted]] = {}
        self._of_pod: dict[str, tuple[int, list[OwnerReference], tuple[Wanted, ...]]] = {}

    def refresh(self, view: ManagerView) -> None:
        """Parse the folded Recommendation objects again if one of them changed since the last call."""
        version = view.custom_version(recommendations.PLURAL)
        if version == self._version:
            return
        self._version = version
        stored = view.customs(recommendations.PLURAL)
        self._wanted = {
            id_: known if (known := self._wanted.get(id_)) and known.version == state.seq else read_wanted(id_, state)
            for id_, state in stored
        }
        self._by_namespace = {}
        for wanted in sorted(self._wanted.values(), key=lambda wanted: (wanted.created, wanted.name)):
            self._by_namespace.setdefault(wanted.namespace, []).append(wanted)
        self._of_pod = {}

    def all(self) -> list[Wanted]:
        """Return every Recommendation, in order of id."""
        return [self._wanted[id_] for id_ in sorted(self._wanted)]

    def one(self, id_: str) -> Wanted | None:
        return self._wanted.get(id_)

    def of_pod(self, view: ManagerView, uid: str) -> tuple[Wanted, ...]:
        """Return the Recommendations that select a stored pod, oldest first; empty for an unknown pod."""
        spec = view.state.of_kind(PodSpecState).get(uid)
        if spec is None or spec.object.metadata.namespace not in self._by_namespace:
            return ()
        owners = list(owners_of(view, spec.object))  # an owner may come, or be adopted, after its pods
        known = self._of_pod.get(uid)
        if known is None or known[0] != spec.seq or known[1] != owners:
            known = self._of_pod[uid] = (spec.seq, owners, self._matching(spec.object, owners))
        return known[2]

    def of(self, view: ManagerView, pod: Pod) -> tuple[Wanted, ...]:
        """Return the Recommendations that select a pod, oldest first. The pod need not be in the log."""
        if pod.metadata.namespace not in self._by_namespace:
            return ()
        return self._matching(pod, list(owners_of(view, pod)))

    def _matching(self, pod: Pod, owners: Sequence[OwnerReference]) -> tuple[Wanted, ...]:
        candidates = self._by_namespace.get(pod.metadata.namespace, ())
        return tuple(wanted for wanted in candidates if wanted.target and wanted.target.matches(pod, owners))

    def candidates(self, view: ManagerView) -> list[str]:
        """Return the uids of all pods in namespaces that have a Recommendation, whether it selects them or not."""
        specs = view.state.of_kind(PodSpecState)
        self._of_pod = {uid: known for uid, known in self._of_pod.items() if uid in specs}
        if not self._by_namespace:
            return []
        return [uid for uid, spec in specs.items() if spec.object.metadata.namespace in self._by_namespace]
