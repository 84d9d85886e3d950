"""Steps of the agents and of the CRI proxies on the nodes."""

from koordcore.events.criproxy import HookServerFailed, HookServersChanged, ProxyFactsDropped, RegisteredHookServer
from koordcore.events.envelope import name_token
from koordcore.events.nodestate import (
    AgentFactLeftOut,
    AgentStarted,
    AgentStopped,
    BeCpuReleased,
    BeCpuSuppressed,
    ContainerHookApplied,
    ContainerHookFailed,
    ContainersOomKilled,
    DeviceInventoryChanged,
    EvictedPod,
    HookedValue,
    HookRegistrationChanged,
    InterferenceDetected,
    InterferenceEnded,
    KnobChange,
    KnobsChanged,
    NodeProblemsReported,
    NodeTopologyReported,
    OomKill,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
    ReportedDevice,
    Suspect,
    TopologyZone,
)
from support.histories.actions import Action
from support.histories.objects import NODES
from support.histories.recording import Recorder


def step_agents(log: Recorder, action: Action) -> None:
    """Write the facts of a step of an agent or of a CRI proxy."""
    what, number, variation = action
    uid = f"uid-{number}"
    token = name_token(NODES[number % len(NODES)])
    match what:
        case "agent":
            log.write("nodestate", token, AgentStarted(host="simulated", version="0.1.0"))
        case "started":
            log.write("nodestate", token, PodsStarted(pods=[uid]))
        case "stopped":
            log.write("nodestate", token, PodsStopped(pods=[uid]))
        case "suppress":
            terms = {"capacity": 8000, "threshold_percent": 65, "budget": 1000 * variation}
            suppressed = BeCpuSuppressed(
                old_quota_us=-1, new_quota_us=100_000 * (variation + 1), terms=terms, reason="the budget fell"
            )
            log.write("nodestate", token, suppressed)
        case "unsuppress":
            log.write("nodestate", token, BeCpuReleased(old_quota_us=100_000, reason="disabled"))
        case "disturbed":
            detected = InterferenceDetected(
                contention=f"psi-cpu/{uid}/{variation}",
                pod_uid=uid,
                namespace="default",
                name=uid,
                qos="LS",
                signal="psi-cpu",
                value=30.0,
                threshold=20.0,
                suspects=[Suspect(uid="other", namespace="default", name="other", qos="BE", score=0.9, cpu_milli=3000)],
                mitigation=["the best-effort budget is computed with a threshold lower by 5 points"],
            )
            log.write("nodestate", token, detected)
        case "undisturbed":
            ended = InterferenceEnded(
                contention=f"psi-cpu/{uid}/{variation}", pod_uid=uid, signal="psi-cpu", lasted_seconds=12.5
            )
            log.write("nodestate", token, ended)
        case "agent-evicts":
            victim = EvictedPod(uid=uid, namespace="default", name=uid, releases={"memory": 1 << 30}, ended=True)
            memory = {"memory": 1 << 31}
            log.write(
                "nodestate",
                token,
                PodsEvictedByAgent(feature="BEMemoryEvict", pods=[victim], reason="memory is short", to_release=memory),
            )
        case "knobs":
            change = KnobChange(knob="kubepods/besteffort/cpu.cfs_quota_us", old="-1", new="200000", writes=3)
            log.write("nodestate", token, KnobsChanged(seconds=60.0, writes=3, changes=[change]))
        case "hooks":
            hooked = f"p{number}"
            value = HookedValue(name="cpuset", plugin="CPUSetAllocator", new="2-3")
            applied = ContainerHookApplied(uid=hooked, namespace="d", pod=hooked, mode="Reconciler", values=[value])
            log.write("nodestate", token, applied)
            failed = ContainerHookFailed(
                uid=hooked,
                namespace="d",
                pod=hooked,
                stage="s",
                mode="NRI",
                plugin="Resctrl",
                policy="Ignore",
                error="e",
            )
            log.write("nodestate", token, failed)
            log.write("nodestate", token, HookRegistrationChanged(endpoint="/s", policy="Ignore", stages=["s"]))
        case "proxy":
            server = RegisteredHookServer(
                file="koordlet.json", endpoint="/s", policy="Fail", hooks=["PreRunPodSandbox"]
            )
            log.write("criproxy", token, HookServersChanged(servers=[server][: variation % 2]))
            away = HookServerFailed(
                uid=f"p{number}",
                namespace="d",
                pod=f"p{number}",
                hook="PreRunPodSandbox",
                server="koordlet.json",
                policy="Fail",
                error="e",
            )
            log.write("criproxy", token, away)
            log.write("criproxy", token, ProxyFactsDropped(facts=variation))
        case "agent-topology":
            zone = TopologyZone(name="node-0", capacity={"cpu": 1000 * (variation + 1)})
            log.write("nodestate", token, NodeTopologyReported(policies=["None"], zones=[zone]))
            kill = OomKill(uid=f"p{number}", namespace="d", name=f"p{number}", container="c", at="2026-07-24T12:00:00Z")
            log.write("nodestate", token, ContainersOomKilled(kills=[kill]))
            log.write("nodestate", token, NodeProblemsReported(problems=["p"][: variation % 2]))
        case "agent-devices":
            device = ReportedDevice(
                type="gpu", minor=0, id="g", amounts={"koordinator.sh/gpu-core": 100}, healthy=variation % 2 == 0
            )
            log.write("nodestate", token, DeviceInventoryChanged(devices=[device], labels={"v": str(variation)}))
        case "agent-stops":
            log.write("nodestate", token, AgentStopped(left={"kubepods/besteffort/cpu.cfs_quota_us": "200000"}))
            log.write("nodestate", token, AgentFactLeftOut(type="KnobsChanged", size_bytes=2_000_000, reason="r"))
        case _:
            pass  # a step of another module, or not possible in the present state: no event
