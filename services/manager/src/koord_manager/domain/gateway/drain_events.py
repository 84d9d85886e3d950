"""Kubernetes events about DrainNodes and DrainNodeGroups: each new phase, and each condition that becomes true.

Source:
    descheduler spec, 13
"""

from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef, name_from_token
from koordcore.state.drains import DrainGroupState, DrainState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pod_status_writes import (
    DESCHEDULER,
    KOORDINATOR,
    MOST_MESSAGE,
    Involved,
    KubernetesEvent,
)

_KINDS: Final = {"drain": "DrainNode", "draingroup": "DrainNodeGroup"}
_GOOD: Final = "OnceAvailable"
"""The only condition of a DrainNode that is not bad."""


class _Known(NamedTuple):
    uid: str = ""
    phase: str = ""
    bad: frozenset[str] = frozenset()


class DrainEvents:
    """Knows which phase and conditions of each drain and each group of drains already have a Kubernetes event.

    Args:
        view: The folded cluster. An earlier leader has recorded the events about its drains.
    """

    def __init__(self, view: ManagerView | None = None) -> None:
        self._known: dict[AggregateRef, _Known] = {}
        if view is not None:
            for kind, state_type in (("drain", DrainState), ("draingroup", DrainGroupState)):
                for id_, state in view.state.of_kind(state_type).items():
                    self._known[AggregateRef(kind, id_)] = _known_of(state)

    def changed(self, view: ManagerView, ref: AggregateRef) -> list[KubernetesEvent]:
        """Return the Kubernetes events about what changed in a drain or group since the last call for it.

        They are a warning for each bad condition that became true, and a normal event for a new phase.

        Args:
            view: The folded cluster.
            ref: Aggregate of a drain or a group of drains. Of other aggregates, nothing is returned.
        """
        state = view.state.get(ref)
        if not isinstance(state, DrainState | DrainGroupState) or not state.object_uid:
            self._known.pop(ref, None)
            return []
        now, before = _known_of(state), self._known.get(ref, _Known())
        self._known[ref] = now
        if before.uid != now.uid:
            before = _Known()
        # events about objects without a namespace are in the namespace "default"
        about = Involved(_KINDS[ref.kind], KOORDINATOR, "default", name_from_token(ref.id), now.uid)
        events = [
            KubernetesEvent(about, type_, f"the condition {type_} became true", "Warning", DESCHEDULER)
            for type_ in sorted(now.bad - before.bad)
        ]
        if now.phase != before.phase:
            message = state.message or f"the phase is {now.phase}"
            events.append(KubernetesEvent(about, now.phase, message[:MOST_MESSAGE], "Normal", DESCHEDULER))
        return events


def _known_of(state: DrainState | DrainGroupState) -> _Known:
    conditions = state.conditions if isinstance(state, DrainState) else ()
    return _Known(state.object_uid, state.phase, frozenset(conditions) - {_GOOD})
