"""The inputs of a drain's next step, read from the folded facts.

Source:
    descheduler spec, 11.2
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, Final

from koordcore.events.envelope import name_token
from koordcore.events.objects import custom_ref
from koordcore.protocol.drains import DrainNode, DrainNodeGroup
from koordcore.protocol.reservation_status import SCHEDULED, ReservationStatus
from koordcore.state import ClusterState
from koordcore.state.aggregates import CustomObjectState, NodeLedger
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.state.migrations import MigrationState
from koordcore.state.reservations import reservation_of_log
from koordcore.values.allocation import is_reservation
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.drain.node_drain import DrainView
from koord_descheduler.domain.drain.progress import DrainPhase, PodPhase, PodProgress, part_name
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.pods import PodView

DRAINS: Final = "drainnodes"
GROUPS: Final = "drainnodegroups"
RESERVATIONS: Final = "reservations"
JOBS: Final = "podmigrationjobs"
_JOB_SECONDS: Final = 60.0
"""A job counts as Pending for this time after it was created, because an API server tells of it later."""

Refusals = Callable[[PodView], tuple[str, ...]]


def drains(builder: ViewBuilder) -> dict[str, DrainNode]:
    """All DrainNodes by name, oldest first, then by name."""
    found = sorted(builder.customs.decoded(DRAINS, DrainNode), key=_age)
    return {drain.metadata.name: drain for drain in found}


def groups(builder: ViewBuilder) -> dict[str, DrainNodeGroup]:
    """All DrainNodeGroups by name, oldest first, then by name."""
    found = sorted(builder.customs.decoded(GROUPS, DrainNodeGroup), key=_age)
    return {group.metadata.name: group for group in found}


def drains_by_node(state: ClusterState, found: Iterable[DrainNode]) -> Mapping[str, Set[str]]:
    """Node -> names as tokens of all its drains: of those that have facts, and of the DrainNodes `found`."""
    tokens: dict[str, set[str]] = {}
    for token, facts in state.of_kind(DrainState).items():
        tokens.setdefault(facts.node, set()).add(token)
    for drain in found:
        tokens.setdefault(drain.spec.node_name, set()).add(name_token(drain.metadata.name))
    return tokens


def state_of(state: ClusterState, drain: DrainNode) -> DrainState | None:
    """None if there are no facts, or if they are about an earlier object of this name."""
    found = state.of_kind(DrainState).get(name_token(drain.metadata.name))
    return found if found is not None and found.object_uid == drain.metadata.uid else None


def group_state_of(state: ClusterState, group: DrainNodeGroup) -> DrainGroupState | None:
    """None if there are no facts, or if they are about an earlier object of this name."""
    found = state.of_kind(DrainGroupState).get(name_token(group.metadata.name))
    return found if found is not None and found.object_uid == group.metadata.uid else None


def drain_view(
    builder: ViewBuilder,
    drain: DrainNode,
    *,
    of_node: Iterable[str],
    now: float,
    refusals: Refusals,
    scheduler_names: frozenset[str],
) -> DrainView:
    """`of_node`: names as tokens of all drains of its node, see `drains_by_node`. `now`: Unix seconds."""
    node, state = drain.spec.node_name, builder.state
    facts, known = state_of(state, drain), state.of_kind(DrainState)
    others = (known[token] for token in of_node if token in known)
    pods = builder.pods_on(node)
    names = [part_name(drain.metadata.name, pod.uid) for pod in pods]
    if facts is not None:
        names += [part_name(drain.metadata.name, uid) for uid in facts.pods]
    return DrainView(
        drain=drain,
        now=now,
        node_exists=builder.has_node(node),
        pods=pods,
        is_first=not any(
            other.node == node and other.phase == DrainPhase.RUNNING and other.object_uid != drain.metadata.uid
            for other in others
        ),
        reservations={**dict(_reservations_on(state, node)), **_reservations_named(state, names)},
        jobs=_jobs(state, drain, facts, names, now),
        refusals=refusals,
        scheduler_names=scheduler_names,
    )


def available_reservations(state: ClusterState) -> Iterator[ReservationStatus]:
    """The Reservations that hold resources of a node."""
    for ledger in state.of_kind(NodeLedger).values():
        for uid, entry in ledger.pods.items():
            if is_reservation(uid, entry.allocation):
                yield reservation_of_log(state, uid)


def explanation(view: DrainView, pod: PodProgress) -> str:
    """Why a pod of a drain is in its phase after the step; "" if there is nothing to say."""
    found = next((each for each in view.pods if each.uid == pod.uid), None)
    if pod.phase is PodPhase.UNMIGRATABLE and found is not None:
        if found.scheduler_name not in view.scheduler_names:
            return f"scheduler {found.scheduler_name} knows no Reservations"
        return ", ".join(view.refusals(found))
    reservation = view.reservations.get(part_name(view.drain.metadata.name, pod.uid))
    if reservation is not None and pod.phase in (PodPhase.READY, PodPhase.UNAVAILABLE):
        scheduled = reservation.condition(SCHEDULED)
        return "" if scheduled is None else scheduled.message
    return ""


def _age(found: DrainNode | DrainNodeGroup) -> tuple[float, str]:
    return unix_seconds(found.metadata.creation_timestamp or ""), found.metadata.name


def _stored(state: ClusterState, plural: str, name: str) -> dict[str, Any] | None:
    found = state.of_kind(CustomObjectState).get(custom_ref(plural, "", name).id)
    return None if found is None else found.object


def _reservations_named(state: ClusterState, names: list[str]) -> dict[str, ReservationStatus]:
    found: dict[str, ReservationStatus] = {}
    for name in names:
        stored = _stored(state, RESERVATIONS, name)
        if stored is not None:
            found[name] = reservation_of_log(state, str(stored["metadata"].get("uid", "")))
    return found


def _reservations_on(state: ClusterState, node: str) -> Iterator[tuple[str, ReservationStatus]]:
    ledger = state.of_kind(NodeLedger).get(name_token(node))
    for uid, entry in ({} if ledger is None else ledger.pods).items():
        if is_reservation(uid, entry.allocation):
            yield entry.name, reservation_of_log(state, uid)


def _jobs(
    state: ClusterState, drain: DrainNode, facts: DrainState | None, names: list[str], now: float
) -> Mapping[str, str]:
    """Name -> phase of the migration jobs of a drain. A job that was just created counts as Pending."""
    found: dict[str, str] = {}
    for name in names:
        stored = _stored(state, JOBS, name)
        if stored is not None:
            status: dict[str, Any] = stored.get("status") or {}
            progress = state.of_kind(MigrationState).get(str(stored["metadata"].get("uid", "")))
            found[name] = str(status.get("phase", "")) if progress is None else progress.progress.phase
    for pod in ({} if facts is None else facts.pods).values():
        name = part_name(drain.metadata.name, pod.uid)
        is_new = now - unix_seconds(pod.phase_since) < _JOB_SECONDS
        if pod.phase == PodPhase.MIGRATING and name not in found and is_new:
            found[name] = ""
    return found
