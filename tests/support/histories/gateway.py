"""Steps of the gateway to Kubernetes, and of an operator who repairs the log."""

from koordcore.events.gateway import (
    GENESIS,
    DriftHealed,
    DriftObserved,
    GenesisRecorded,
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
    PodEvictionWithdrawn,
    PodResizeAnswered,
    PodResizeRequested,
    ResizedContainer,
)
from koordcore.events.log import LOG, EventSkipped, LogRestored
from koordcore.state.aggregates import EvictionState, PodSpecState
from support.histories.actions import Action
from support.histories.objects import NODES
from support.histories.recording import Recorder


def step_gateway(log: Recorder, action: Action) -> None:
    """Write the facts of a step of the gateway or of an operator."""
    what, number, variation = action
    uid = f"uid-{number}"
    name = NODES[number % len(NODES)]
    pods = log.state.of_kind(PodSpecState)
    match what:
        case "bound" if uid in pods:
            log.write("podspec", uid, PodBound(node=name, placement=variation))
        case "resized" if uid in pods:
            asked = ResizedContainer(name="c", requests={"cpu": f"{100 + variation}m"})
            log.write("podspec", uid, PodResizeRequested(initiator="recommender", containers=[asked]))
            refused = "Invalid" if variation % 2 else ""
            log.write("podspec", uid, PodResizeAnswered(request=log.events[-1].seq, failure=refused))
        case "bind-failed" if uid in pods:
            log.write("podspec", uid, PodBindFailed(node=name, placement=variation, reason="AssignedElsewhere"))
        case "evict":
            wanted = PodEvictionRequested(
                namespace="default", name=f"pod-{number}", initiator="agent", reason="Evicted"
            )
            log.write("eviction", uid, wanted)
        case "evict-delayed" if uid in log.state.of_kind(EvictionState):
            log.write("eviction", uid, PodEvictionDelayed(reason="TooManyRequests"))
        case "evicted" if uid in log.state.of_kind(EvictionState):
            log.write("eviction", uid, PodEvicted())
        case "not-evicted" if uid in log.state.of_kind(EvictionState):
            log.write("eviction", uid, PodEvictionFailed(reason="TooManyRequests"))
        case "evict-withdrawn" if uid in log.state.of_kind(EvictionState):
            log.write("eviction", uid, PodEvictionWithdrawn(reason="JobDeleted"))
        case "drift":
            found = DriftObserved(aggregate=f"podspec.{uid}", difference="differs", fingerprint=str(variation))
            log.write("drift", f"podspec={uid}", found)
        case "no-drift":
            log.write("drift", f"podspec={uid}", DriftHealed(aggregate=f"podspec.{uid}", how="vanished"))
        case "genesis":
            log.write(*GENESIS, GenesisRecorded(cluster_epoch=variation, observed={"podspec": number}))
        case "skip":
            log.write("fold", "projector", EventSkipped(seq=number + 1, reason="test", operator="test"))
        case "restored":
            cut = LogRestored(position=number, left_out_to=number + 1, asked=str(number), backup_taken_at="")
            log.write(*LOG, cut)
        case _:
            pass  # a step of another module, or not possible in the present state: no event
