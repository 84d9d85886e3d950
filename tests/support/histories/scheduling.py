"""Steps of what the scheduler decides beside the place of a pod: gangs, quotas, explanations, topology."""

from koordcore.events.cluster import ClusterTopologyComputed, TopologyDomain, TypicalPod, TypicalPodsLearned
from koordcore.events.gang import GangPhaseChanged, GangPlaced, PlacedMember
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.schedule_explanation import DomainOutlook, ScheduleExplanationComputed, SchedulingOutlook
from support.histories.actions import Action
from support.histories.objects import NODES
from support.histories.recording import Recorder


def step_scheduling(log: Recorder, action: Action) -> None:
    """Write the facts of a step of the scheduler that places no pod."""
    what, number, variation = action
    uid = f"uid-{number}"
    name = NODES[number % len(NODES)]
    match what:
        case "gang":
            member = PlacedMember(uid=uid, namespace="default", name=f"pod-{number}", node=name)
            log.write(
                "gang", f"default=g{number}", GangPlaced(namespace="default", name=f"g{number}", members=[member])
            )
        case "gang-phase":
            phase = GangPhaseChanged(namespace="default", name=f"g{number}", phase="Running", running=variation)
            log.write("gang", f"default=g{number}", phase)
        case "quota":
            log.write("quota", f"q-{number}", QuotaStatusComputed(name=f"q-{number}", used={"cpu": variation}))
        case "explanation":
            outlook = SchedulingOutlook(failed_message=f"{variation} Insufficient cpu")
            explained = ScheduleExplanationComputed(
                namespace="default",
                name=f"why-{number}",
                last_update_time="2026-01-01T00:00:00.000000Z",
                domains=[DomainOutlook(scheduling=outlook, preemption=SchedulingOutlook())],
            )
            log.write("scheduleexplanation", f"default=why-{number}", explained)
        case "topology":
            domain = TopologyDomain(layer="ClusterTopologyLayer", nodes=variation)
            log.write("clustertopology", "default", ClusterTopologyComputed(name="default", domains=[domain]))
        case "gpu-workload":
            typical = TypicalPod(milli_cpu=1000, gpu_milli=100 * variation, num_gpu=1, frequency=1.0)
            event = TypicalPodsLearned(pods=number, window_seconds=600, typical_pods=[typical])
            log.write("gpuworkload", "default", event)
        case _:
            pass  # a step of another module, or not possible in the present state: no event
