"""Steps of pods and Reservations: submitted, nominated, placed, changed, released and deleted."""

import msgspec
from koordcore.events.envelope import BasedOn, name_token
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pod_on_node
from koordcore.events.objects import PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.pod import (
    NodeScore,
    PlacementExplanation,
    PluginExclusion,
    PodDeviceUnhealthy,
    PodNominated,
    PodNominationCleared,
    PodPlaced,
    PodReallocated,
    PodReleased,
    UnhealthyDevice,
)
from koordcore.events.reservation import (
    ReservationCollected,
    ReservationDeleted,
    ReservationFailed,
    ReservationSucceeded,
    ReservationUnschedulable,
)
from koordcore.protocol.pod_resources import pod_requests
from koordcore.state.aggregates import NodeLedger, PodSpecState, PodState
from koordcore.values.allocation import NOTHING, Allocation, ReservationUse
from support.histories.actions import Action
from support.histories.objects import NODES, pod
from support.histories.recording import Recorder


def _place(log: Recorder, number: int, variation: int, allocation: Allocation = NOTHING) -> None:
    uid = f"uid-{number}"
    spec = log.state.of_kind(PodSpecState).get(uid)
    placed = log.state.of_kind(PodState).get(uid)
    if spec is None or (placed is not None and placed.node):
        return
    chosen = NODES[variation % len(NODES)]
    explanation = PlacementExplanation(
        nodes_considered=3,
        nodes_feasible=2,
        exclusions=[PluginExclusion("NodeResourcesFit", 1, {"Insufficient cpu": 1})],
        top=[NodeScore(chosen, 90, {"NodeResourcesFit": 90})],
        policy_version="test",
        based_on=BasedOn(len(log.events), 0),
    )
    placement = PodPlaced(
        namespace="default",
        name=f"pod-{number}",
        node=chosen,
        requests=pod_requests(spec.object),
        attempt=1,
        queued_at=spec.added_at,
        explanation=explanation,
        allocation=allocation,
    )
    log.write("pod", uid, placement)
    log.write("node", name_token(chosen), NodeResourcesTaken(pods=[pod_on_node(uid, spec.object, allocation)]))


def _reallocate(log: Recorder, number: int, variation: int) -> None:
    """Let a placed pod take its amounts from a Reservation from now on. Variation 3: it is resized instead."""
    uid = f"uid-{number}"
    placed = log.state.of_kind(PodState).get(uid)
    held = None if placed is None else log.state.of_kind(NodeLedger).get(name_token(placed.node))
    if placed is None or held is None or uid not in held.pods:
        return
    used = Allocation(reservation=ReservationUse(name=f"resv-{variation}", uid=f"r-{variation}"))
    requests, reason = placed.requests, "pre-allocated"
    if variation == 3:
        used, reason = placed.allocation, "resized"
        requests = {name: amount + 100 for name, amount in placed.requests.items()}
    event = PodReallocated(
        namespace="default",
        name=f"pod-{number}",
        node=placed.node,
        requests=requests,
        allocation=used,
        reason=reason,
    )
    log.write("pod", uid, event)
    pods = [msgspec.structs.replace(held.pods[uid], requests=requests, allocation=used)]
    log.write("node", name_token(placed.node), NodeResourcesTaken(pods=pods))


def _reserve(log: Recorder, number: int, variation: int) -> None:
    """Place a Reservation: under its own uid, with an allocation that names itself."""
    uid, template = f"r-{number}", pod(number, 1000 * (variation + 1))
    own = Allocation(reservation=ReservationUse(name=f"resv-{number}", uid=uid))
    chosen = NODES[variation % len(NODES)]
    placement = PodPlaced(
        namespace="default",
        name=f"resv-{number}",
        node=chosen,
        requests=pod_requests(template),
        attempt=1,
        queued_at="2026-01-01T00:00:00.000000Z",
        explanation=PlacementExplanation(
            nodes_considered=3, nodes_feasible=3, policy_version="test", based_on=BasedOn(len(log.events), 0)
        ),
        allocation=own,
    )
    log.write("pod", uid, placement)
    log.write("node", name_token(chosen), NodeResourcesTaken(pods=[pod_on_node(uid, template, own)]))


def _take(log: Recorder, number: int, variation: int) -> None:
    """Place a pod that takes some of its amounts from a Reservation, which may be on the node or not."""
    used = ReservationUse(name=f"resv-{number % 3}", uid=f"r-{number % 3}", amounts={"cpu": 400 * variation + 1})
    _place(log, number, variation, Allocation(reservation=used))


def _release(log: Recorder, number: int, reason: str, *, uid: str = "") -> None:
    uid = uid or f"uid-{number}"
    placed = log.state.of_kind(PodState).get(uid)
    if placed is None or not placed.node:
        return
    log.write("pod", uid, PodReleased(namespace="default", name=f"pod-{number}", node=placed.node, reason=reason))
    log.write("node", name_token(placed.node), NodeResourcesReturned(pods=[uid]))


def _clear_nomination(log: Recorder, number: int, reason: str) -> None:
    uid = f"uid-{number}"
    state = log.state.of_kind(PodState).get(uid)
    if state is not None and state.nominated:
        cleared = PodNominationCleared(namespace="default", name=f"pod-{number}", node=state.nominated, reason=reason)
        log.write("pod", uid, cleared)


def step_pods(log: Recorder, action: Action) -> None:
    """Write the facts of a step of a pod or of a Reservation."""
    what, number, variation = action
    uid = f"uid-{number}"
    pods = log.state.of_kind(PodSpecState)
    match what:
        case "add-pod" if uid not in pods and uid not in log.state.of_kind(PodState):
            log.write(
                "podspec", uid, PodSpecAdded(object=pod(number, 100 * (variation + 1), best_effort=variation == 3))
            )
        case "change-pod" if uid in pods:
            changed = pod(number, 100 * (variation + 1))
            changed.metadata.labels["version"] = str(variation)
            log.write("podspec", uid, PodSpecChanged(object=changed))
        case "delete-pod" if uid in pods:
            log.write("podspec", uid, PodSpecDeleted(namespace="default", name=f"pod-{number}"))
            _release(log, number, "deleted")
            _clear_nomination(log, number, "deleted")
        case "place":
            _place(log, number, variation)
        case "release":
            _release(log, number, "node-gone")
        case "nominate" if uid in pods:
            chosen = NODES[variation % len(NODES)]
            nominated = PodNominated(namespace="default", name=f"pod-{number}", node=chosen, plugin="DefaultPreemption")
            log.write("pod", uid, nominated)
        case "unnominate" if uid in log.state.of_kind(PodState):
            _clear_nomination(log, number, "outranked")
        case "reallocate":
            _reallocate(log, number, variation)
        case "device-fails" if uid in log.state.of_kind(PodState):
            pod_node = log.state.of_kind(PodState)[uid].node
            broken = [UnhealthyDevice(type="gpu", minor=minor, id=f"GPU-{minor}") for minor in range(variation)]
            log.write(
                "pod", uid, PodDeviceUnhealthy(namespace="default", name=f"pod-{number}", node=pod_node, devices=broken)
            )
        case "reserve" if f"r-{number}" not in log.state.of_kind(PodState):
            _reserve(log, number, variation)
        case "take" if uid in pods and uid not in log.state.of_kind(PodState):
            _take(log, number, variation)
        case "reservation-wait":
            waits = ReservationUnschedulable(name=f"resv-{number}", message=f"0/{variation} nodes are available")
            log.write("reservation", f"r-{number}", waits)
        case "reservation-end":
            ended = (
                ReservationSucceeded(name=f"resv-{number}", node="", owner=uid),
                ReservationFailed(name=f"resv-{number}", message="its time is over"),
            )
            log.write("reservation", f"r-{number}", ended[variation % 2])
            _release(log, number, "finished", uid=f"r-{number}")
        case "reservation-collect":
            log.write("reservation", f"r-{number}", ReservationCollected(name=f"resv-{number}"))
        case "reservation-delete":
            log.write("reservation", f"r-{number}", ReservationDeleted(name=f"resv-{number}"))
            _release(log, number, "deleted", uid=f"r-{number}")
        case _:
            pass  # a step of another module, or not possible in the present state: no event
