"""Learn how many replicas a controller of pods should have, if its kind is not mirrored: from its `scale`.

`ScaleTurns` decides which controllers are asked for, and when: those of pods in the log. The work for an event does not
grow with the cluster. A change of the answer becomes a fact.

Source:
    descheduler spec, 7.8; https://kubernetes.io/docs/reference/using-api/api-concepts/; Scale of autoscaling/v1
"""

import heapq
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.events.envelope import Draft
from koordcore.events.objects import SCALES, CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol.objects import KubeStruct, ObjectMeta, Pod, object_from_json
from koordcore.state.aggregates import PodSpecState
from koordcore.values import codec

from koord_manager.domain.cluster.mirrored_kinds import object_of
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.requests import Json
from koord_manager.domain.gateway.resources import NODES, OTHERS

TURN_SECONDS: Final = 0.1
"""Pause after each controller: at most ten are asked for in a second."""
SOONEST_SECONDS: Final = 5.0
"""Shortest time between two requests for one controller, however often its pods change."""
PERIOD_SECONDS: Final = 60.0
"""Time after which a controller is asked for again, although none of its pods has changed."""
REFUSED_SECONDS: Final = 600.0
"""Time for which it is remembered that a kind has no scale, or that the API server refuses to show it."""
_NEVER_ASKED: Final = frozenset((each.group, each.kind) for each in (*OTHERS, NODES))
"""Group and kind of controllers that are mirrored themselves."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VERSION: Final = re.compile(rf"({_NAME.pattern}/)?{_NAME.pattern}")


class Controller(NamedTuple):
    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and uid: a pod of another namespace that names this uid has another controller."""
        return self.namespace, self.uid


def asked_controller(pod: Pod) -> Controller | None:
    """Return the controller of a pod; None if it has none, or its scale is not asked for.

    A pod's author may write anything into an owner reference. So only names that an object can have get into a path.
    """
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    if owner is None or (owner.api_version.rpartition("/")[0], owner.kind) in _NEVER_ASKED:
        return None
    if not _VERSION.fullmatch(owner.api_version) or not all(map(_NAME.fullmatch, (owner.name, owner.uid))):
        return None
    return Controller(pod.metadata.namespace, owner.api_version, owner.kind, owner.name, owner.uid)


class _Resource(KubeStruct):
    """A resource of an API version, or one of its subresources; then the name is `<resource>/<subresource>`."""

    name: str = ""
    kind: str = ""
    namespaced: bool = False


class _ResourceList(KubeStruct):
    resources: list[_Resource] = []


class _ScaleSpec(KubeStruct):
    replicas: int = 0


class _Scale(KubeStruct):
    metadata: ObjectMeta
    spec: _ScaleSpec


class ScaledResource(NamedTuple):
    plural: str
    is_namespaced: bool


def version_path(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def scaled_resources(listed: bytes) -> dict[str, ScaledResource]:
    """Return kind -> its resource, for the kinds of an APIResourceList that have a scale.

    Raises:
        codec.DecodeError: It is not valid.
    """
    resources = codec.decode(listed, _ResourceList).resources
    names = {each.name for each in resources}
    scaled = (each for each in resources if f"{each.name}/scale" in names)
    return {each.kind: ScaledResource(each.name, each.namespaced) for each in scaled}


def scale_path(controller: Controller, resource: ScaledResource) -> str:
    where = f"/namespaces/{controller.namespace}" if resource.is_namespaced else ""
    return f"{version_path(controller.api_version)}{where}/{resource.plural}/{controller.name}/scale"


def replicas_in(scale: bytes, uid: str) -> int | None:
    """Return the replicas of a Scale; None if it is that of another object, which has the controller's name now.

    Args:
        uid: Uid of the controller.

    Raises:
        codec.DecodeError: The answer is not a Scale.
    """
    found = codec.decode(scale, _Scale)
    return found.spec.replicas if found.metadata.uid == uid else None


def scale_draft(view: ManagerView, controller: Controller, replicas: int | None) -> Draft | None:
    """Return the fact that brings the log up to date about the scale of a controller; None if nothing has changed.

    `replicas` is None if the log should not have a number, for example without a scale.
    """
    ref = custom_ref(SCALES, controller.namespace, controller.uid)
    old, last = object_of(view.state.get(ref)), view.state.last_seq(ref)
    if replicas is None:
        event = CustomObjectDeleted(kind="Scale", namespace=controller.namespace, name=controller.name)
        return None if old is None else Draft(ref, event, last)
    named = {"name": controller.name, "uid": controller.uid}
    owner = {"apiVersion": controller.api_version, "kind": controller.kind, **named}
    found: Json = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {**named, "namespace": controller.namespace, "ownerReferences": [owner]},
        "spec": {"replicas": replicas},
    }
    return None if old == found else Draft(ref, CustomObjectObserved(object=found), last)


@dataclass(slots=True)
class _Turn:
    """When a controller is asked for: at `due`, or at `soonest` if one of its pods changes."""

    controller: Controller
    due: float
    soonest: float


class ScaleTurns:
    """The controllers of pods in the log whose scale is asked for, each with its next turn. Times are seconds."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, str], _Turn] = {}
        self._timers: list[tuple[float, tuple[str, str]]] = []

    @property
    def next_due(self) -> float | None:
        """Time of the next turn, or None without one; it may be too early, never too late."""
        return self._timers[0][0] if self._timers else None

    def seed(self, view: ManagerView, now: float) -> None:
        """Add the controllers of all pods, and those whose scale the log has although they may have no pods."""
        for spec in view.state.of_kind(PodSpecState).values():
            self.note(spec.object, now)
        for _, state in view.customs(SCALES):
            meta = object_from_json(state.object.get("metadata"), ObjectMeta)
            controller = Controller(meta.namespace, "", "", meta.name, meta.uid)
            if controller.key not in self._turns:
                self._add(controller, now)

    def note(self, pod: Pod, now: float) -> bool:
        """Bring the turn of a new or changed pod's controller forward; return whether it has an earlier turn now."""
        controller = asked_controller(pod)
        if controller is None:
            return False
        turn = self._turns.get(controller.key)
        if turn is None:
            self._add(controller, now)
            return True
        turn.controller = controller
        due = max(now, turn.soonest)
        if due >= turn.due:
            return False
        self._set(turn, due, turn.soonest)
        return True

    def take(self, now: float) -> Controller | None:
        """Return a controller whose turn has come, and give it its next turn; None if there is none."""
        while self._timers and self._timers[0][0] <= now:
            due, key = heapq.heappop(self._timers)
            turn = self._turns.get(key)
            if turn is not None and turn.due == due:
                # Half of the time is left for controllers that are new or change.
                period = max(PERIOD_SECONDS, 2 * TURN_SECONDS * len(self._turns))
                self._set(turn, now + period, now + SOONEST_SECONDS)
                return turn.controller
        return None

    def postpone(self, controller: Controller, until: float) -> None:
        """Give a controller its next turn at `until`, and not before, whatever its pods do."""
        self._set(self._turns[controller.key], until, until)

    def drop(self, controller: Controller) -> None:
        """Give a controller no more turns, because it has no pods."""
        self._turns.pop(controller.key, None)

    def _add(self, controller: Controller, now: float) -> None:
        turn = self._turns[controller.key] = _Turn(controller, now, now)
        self._set(turn, now, now)

    def _set(self, turn: _Turn, due: float, soonest: float) -> None:
        turn.due, turn.soonest = due, soonest
        heapq.heappush(self._timers, (due, turn.controller.key))
