"""What users hear about DrainNodes and DrainNodeGroups: each change of the phase, and conditions that turn bad.

Source:
    descheduler spec, 13
"""

from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef, name_from_token
from koordcore.state.drains import DrainGroupState, DrainState

from koord_manager.domain.cluster.view import ManagerView

_KINDS: Final = {"drain": "DrainNode", "draingroup": "DrainNodeGroup"}
_GOOD: Final = "OnceAvailable"
"""The only condition of a DrainNode that is not bad."""


class DrainWord(NamedTuple):
    """A change of a drain that becomes a Kubernetes event.

    Attributes:
        kind: DrainNode or DrainNodeGroup.
        name: Name of the object.
        uid: Uid of the object.
        reason: The new phase, or the type of the condition.
        message: Sentence for the user.
        type: "Normal" or "Warning".
    """

    kind: str
    name: str
    uid: str
    reason: str
    message: str
    type: str


class _Told(NamedTuple):
    uid: str = ""
    phase: str = ""
    bad: frozenset[str] = frozenset()


class DrainWords:
    """Knows what was said about each drain and each group of drains, so that only changes become events.

    Args:
        view: The folded cluster. What it has already was said by an earlier leader.
    """

    def __init__(self, view: ManagerView | None = None) -> None:
        self._told: dict[AggregateRef, _Told] = {}
        if view is not None:
            for kind, state_type in (("drain", DrainState), ("draingroup", DrainGroupState)):
                for id_, state in view.state.of_kind(state_type).items():
                    self._told[AggregateRef(kind, id_)] = _told(state)

    def changed(self, view: ManagerView, ref: AggregateRef) -> list[DrainWord]:
        """Return what changed since the last call.

        Args:
            view: The folded cluster.
            ref: Aggregate of a drain or a group of drains. Of other aggregates, nothing is returned.
        """
        state = view.state.get(ref)
        if not isinstance(state, DrainState | DrainGroupState) or not state.object_uid:
            self._told.pop(ref, None)
            return []
        now, before = _told(state), self._told.get(ref, _Told())
        self._told[ref] = now
        if before.uid != now.uid:
            before = _Told()
        about = (_KINDS[ref.kind], name_from_token(ref.id), now.uid)
        said = [
            DrainWord(*about, type_, f"the condition {type_} became true", "Warning")
            for type_ in sorted(now.bad - before.bad)
        ]
        if now.phase != before.phase:
            message = state.message or f"the drain is in the phase {now.phase}"
            said.append(DrainWord(*about, now.phase, message, "Normal"))
        return said


def _told(state: DrainState | DrainGroupState) -> _Told:
    conditions = state.conditions if isinstance(state, DrainState) else ()
    return _Told(state.object_uid, state.phase, frozenset(conditions) - {_GOOD})
