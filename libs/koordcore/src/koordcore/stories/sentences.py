"""Describe a stored fact in one sentence, for lists of events and stories.

The functions never fail: bodies may have older schemas, in which fields are missing.

Source: descheduler spec, 9.2 (4), 12.
"""

from typing import Any, TypeAlias

import msgspec

from koordcore.events.descheduling import DeletionCostsCarriedOut, DeletionCostsDecided, EvictionRefused
from koordcore.events.envelope import StoredEvent
from koordcore.protocol.resource_names import cfs_quota_text, cores, gibibytes


def sentence_of(stored: StoredEvent) -> str:
    """Return one sentence that describes a stored fact. It works for old schema versions too and never fails."""
    try:
        body = msgspec.json.decode(stored.body, type=dict[str, Any])
    except msgspec.MsgspecError:
        body = {}
    return summarize(stored.type, stored.ref.kind, stored.ref.id, body)


def summarize(type_name: str, kind: str, id_: str, body: dict[str, Any]) -> str:
    """Return one sentence that describes a fact. If its type has no sentence, return type and aggregate. `body`: Its
    body as JSON, of any schema version: fields may be missing.
    """
    match type_name:
        case "PodSpecAdded":
            return f"{_named(body)} was submitted"
        case "PodSpecChanged":
            return f"{_named(body)} was changed"
        case "PodSpecDeleted":
            return f"pod {body.get('namespace')}/{body.get('name')} was deleted"
        case "PodPlaced":
            explanation: dict[str, Any] = body.get("explanation") or {}
            feasible, considered = explanation.get("nodes_feasible", 0), explanation.get("nodes_considered", 0)
            return (
                f"pod {body.get('namespace')}/{body.get('name')} was placed on {body.get('node')}"
                f" ({feasible} of {considered} nodes were feasible)"
            )
        case "PodReleased":
            return (
                f"pod {body.get('namespace')}/{body.get('name')} was released from {body.get('node')}:"
                f" {body.get('reason')}"
            )
        case "PodReallocated":
            name, why = f"{body.get('namespace')}/{body.get('name')}", body.get("reason")
            return f"what {name} holds on node {body.get('node')} was changed: {why}"
        case "PodNominated":
            displaced = ", ".join(f"{each['namespace']}/{each['name']}" for each in body.get("victims", ()))
            cost = f", after these pods left: {displaced}" if displaced else ""
            return f"pod {body.get('namespace')}/{body.get('name')} was nominated to node {body.get('node')}{cost}"
        case "PodNominationCleared":
            name = f"{body.get('namespace')}/{body.get('name')}"
            return f"the nomination of pod {name} to node {body.get('node')} was cleared: {body.get('reason')}"
        case "PodDeviceUnhealthy":
            name, node = f"{body.get('namespace')}/{body.get('name')}", body.get("node")
            devices = ", ".join(f"{each['type']} {each['minor']}" for each in body.get("devices", ()))
            if devices:
                return f"{devices} of node {node} became unhealthy while pod {name} holds it"
            return f"the devices of pod {name} on node {node} are healthy again"
        case "PodEvictionRequested":
            said = body.get("message") or body.get("reason")
            return f"pod {body.get('namespace')}/{body.get('name')} was asked to leave node {body.get('node')}: {said}"
        case "PodResizeRequested":
            resized: list[dict[str, Any]] = body.get("containers") or []
            names = ", ".join(str(each.get("name")) for each in resized)
            return f"other resources were requested for containers of pod {id_}: {names}"
        case "PodResizeAnswered":
            failure = body.get("failure")
            return f"the API server {f'refused ({failure})' if failure else 'accepted'} a resize of pod {id_}"
        case "PodEvicted":
            return f"pod {id_} {'was gone already' if body.get('gone') else 'was evicted'}"
        case "PodEvictionDelayed":
            why = f"{body.get('reason')} {body.get('message', '')}".rstrip()
            return f"the eviction of pod {id_} has to be repeated: {why}"
        case "PodEvictionFailed":
            return f"pod {id_} was not evicted: {body.get('reason')} {body.get('message', '')}".rstrip()
        case "PodEvictionWithdrawn":
            return f"the eviction of pod {id_} was withdrawn: {body.get('reason')} {body.get('message', '')}".rstrip()
        case "QuotaStatusComputed":
            return f"the status of quota {body.get('name')} changed"
        case "ScheduleExplanationComputed":
            answer = "expired" if body.get("expired") else body.get("failed_message") or "all pods have nodes"
            return f"explanation {body.get('namespace')}/{body.get('name')}: {answer}"
        case "ClusterTopologyComputed":
            return f"the network has {len(body.get('domains', ()))} domains"
        case "TypicalPodsLearned":
            return f"{len(body.get('typical_pods', ()))} typical pods were learned from {body.get('pods')} pods"
        case "GangPhaseChanged":
            return f"gang {body.get('namespace')}/{body.get('name')} is {body.get('phase')}"
        case "PodBound":
            found = " (found bound)" if body.get("observed") else ""
            return f"the API server bound pod {id_} to {body.get('node')}{found}"
        case "PodBindFailed":
            return f"the API server refused to bind pod {id_} to {body.get('node')}: {body.get('reason')}"
        case "NodeResourcesTaken":
            return f"{_count(body)} took resources of node {_name(id_)}"
        case "NodeResourcesReturned":
            return f"{_count(body)} returned resources to node {_name(id_)}"
        case "PodsStarted":
            return f"{_count(body)} started on node {_name(id_)}"
        case "PodsStopped":
            return f"{_count(body)} stopped on node {_name(id_)}"
        case "NodeSpecAdded" | "NodeSpecChanged" | "NodeSpecDeleted":
            what = {
                "NodeSpecAdded": "was registered",
                "NodeSpecChanged": "was changed",
                "NodeSpecDeleted": "was deleted",
            }
            return f"node {_name(id_)} {what[type_name]}"
        case "NodeOvercommitComputed":
            batch = body.get("batch_cpu_milli")
            mid = body.get("mid_cpu_milli")
            offered = "no batch resources" if batch is None else f"{cores(batch)} cores of batch cpu"
            besides = f" and {cores(mid)} of mid cpu" if mid else ""
            return f"node {_name(id_)} offers {offered}{besides} ({body.get('reason')})"
        case "NodeSloRendered":
            return f"node {_name(id_)} got a new NodeSLO"
        case "NodeMetricPolicyRendered":
            spec: dict[str, Any] = body.get("spec") or {}
            interval = spec.get("reportIntervalSeconds")
            return f"the agent of node {_name(id_)} reports every {interval} s"
        case "NodeRatiosComputed":
            normalization, amplification = body.get("cpu_normalization"), body.get("amplification")
            causes: dict[str, str] = body.get("faults") or {}
            faults = "".join(f"; {fault}" for fault in causes.values())
            return (
                f"node {_name(id_)}: cpu normalization {normalization or 'none'},"
                f" amplification {amplification or 'none'}{faults}"
            )
        case "NodeDevicesComputed":
            given: dict[str, int] = body.get("resources") or {}
            names = ", ".join(f"{name} {amount}" for name, amount in sorted(given.items()))
            return f"node {_name(id_)} offers devices: {names or 'none'}"
        case "NodeHealthAssessed":
            because = ", ".join(body.get("reasons") or ()) or "no reason"
            return (
                f"node {_name(id_)} is {body.get('level')} ({because}): weight {body.get('reported_weight')},"
                f" threshold offsets {_offsets(body.get('offsets'))}"
            )
        case "MassAbnormalityChanged":
            if not body.get("active"):
                return "the number of abnormal nodes is within the limit"
            abnormal = f"{body.get('abnormal')} of {body.get('nodes')} nodes are abnormal"
            return f"{abnormal}, the weights of at most {body.get('cap')} are lowered"
        case "ConfigAccepted":
            return f"configuration {_name(id_)} is valid and in force"
        case "ConfigRejected":
            reasons: dict[str, str] = body.get("reasons") or {}
            return f"configuration {_name(id_)} was refused: " + "; ".join(reasons.values())
        case "ConfigDeleted":
            return f"configuration {_name(id_)} was deleted"
        case "ConfigWarned":
            warnings: dict[str, str] = body.get("warnings") or {}
            return f"configuration {_name(id_)}: " + ("; ".join(warnings.values()) or "no warnings")
        case "QuotaProfileRendered":
            quota = f"{body.get('quota_namespace')}/{body.get('quota_name')}"
            if body.get("fault"):
                return f"quota profile {_name(id_)} cannot be rendered: {body.get('fault')}"
            return f"quota profile {_name(id_)}: quota {quota} equals its {body.get('nodes', 0)} nodes"
        case "QuotaProfileDropped":
            return f"quota profile {_name(id_)} was deleted; its quota stays"
        case "RecommendationComputed":
            amounts = "; ".join(_recommended(container) for container in body.get("containers") or ())
            return (
                f"{body.get('target') or _name(id_)} should request {amounts or 'no amounts yet'} ({body.get('cause')})"
            )
        case "RecommendationDropped":
            return f"recommendation {_name(id_)} was dropped"
        case "AgentStarted":
            return f"the agent of node {_name(id_)} started ({body.get('host')})"
        case "BeCpuSuppressed":
            return (
                f"best-effort pods of node {_name(id_)}: cpu {_quota(body.get('old_quota_us'))}"
                f" -> {_quota(body.get('new_quota_us'))}; {body.get('reason')}"
            )
        case "BeCpuReleased":
            return f"best-effort pods of node {_name(id_)} are no longer suppressed; {body.get('reason')}"
        case "PodsEvictedByAgent":
            victims: list[dict[str, Any]] = body.get("pods") or []
            names = ", ".join(f"{pod.get('namespace')}/{pod.get('name')}" for pod in victims)
            return f"the agent of node {_name(id_)} evicted {names} ({body.get('feature')}): {body.get('reason')}"
        case "InterferenceDetected":
            steps: list[str] = body.get("mitigation") or []
            mitigation = "; ".join(steps)
            return (
                f"pod {body.get('namespace')}/{body.get('name')} on node {_name(id_)} suffers interference:"
                f" {body.get('signal')} {body.get('value')} reached {body.get('threshold')}"
                f"{'; ' + mitigation if mitigation else ''}"
            )
        case "InterferenceEnded":
            return f"interference on node {_name(id_)} ended: {body.get('signal')} of {body.get('pod_uid')}"
        case "KnobsChanged":
            return f"the agent of node {_name(id_)} wrote {_knobs(body)} {body.get('writes')} times"
        case "ContainerHookApplied":
            values: list[dict[str, Any]] = body.get("values") or []
            changed = ", ".join(f"{value.get('name')} {value.get('new')}" for value in values)
            return f"{_hooked(body)} got {changed or 'nothing'} from hooks"
        case "ContainerHookFailed":
            return f"{_hooked(body)}: hook {body.get('plugin')} failed: {body.get('error')}"
        case "HookRegistrationChanged":
            stages: list[str] = body.get("stages") or []
            return f"the agent of node {_name(id_)} registered for the stages {', '.join(stages) or 'none'}"
        case "HookServersChanged":
            servers: list[dict[str, Any]] = body.get("servers") or []
            named = ", ".join(f"{server.get('file')} (policy {server.get('policy')})" for server in servers)
            return f"the CRI proxy of node {_name(id_)} asks {named or 'no hook server'}"
        case "HookServerFailed":
            return f"{_hooked(body)}: hook server {body.get('server')} failed: {body.get('error')}"
        case "ProxyFactsDropped":
            return f"the CRI proxy of node {_name(id_)} dropped its oldest {body.get('facts')} facts"
        case "AgentFactLeftOut":
            what = f"{body.get('type')} of {body.get('size_bytes'):,} bytes"
            return f"the log does not take a {what} of the agent of node {_name(id_)}: {body.get('reason')}"
        case "NodeProblemsReported":
            lasting: list[str] = body.get("problems") or []
            return f"problems of node {_name(id_)}: {'; '.join(lasting) or 'none any more'}"
        case "ContainersOomKilled":
            kills: list[dict[str, Any]] = body.get("kills") or []
            killed = ", ".join(f"{k.get('namespace')}/{k.get('name')} {k.get('container')}" for k in kills)
            return f"containers of node {_name(id_)} were killed for lack of memory: {killed}"
        case "AgentStopped":
            return f"the agent of node {_name(id_)} stopped; its pods keep running"
        case "EventSkipped":
            return f"fold {id_} skips event {body.get('seq')}: {body.get('reason')}"
        case "LogRestored":
            left_out = f"facts {body.get('position', 0) + 1} to {body.get('left_out_to')}"
            return (
                f"a backup of {body.get('backup_taken_at')} was restored up to {body.get('asked')}, without {left_out}"
            )
        case _:
            return f"{type_name} of {kind} {_name(id_)}"


def _hooked(body: dict[str, Any]) -> str:
    container = f"container {body.get('container')} of " if body.get("container") else ""
    return f"{container}pod {body.get('namespace')}/{body.get('pod')}"


def _offsets(offsets: dict[str, int] | None) -> str:
    lowered = ", ".join(f"{name} {offset:+d}" for name, offset in sorted((offsets or {}).items()) if offset)
    return lowered or "as configured"


def _recommended(container: dict[str, Any]) -> str:
    target: dict[str, int] = container.get("target") or {}
    cpu, memory = target.get("cpu_milli", 0), target.get("memory_bytes", 0)
    return f"{container.get('name')} {cores(cpu)} cores and {gibibytes(memory)}"


def _named(body: dict[str, Any]) -> str:
    obj: dict[str, Any] = body.get("object") or {}
    meta: dict[str, Any] = obj.get("metadata") or {}
    return f"pod {meta.get('namespace', '')}/{meta.get('name', '')}"


def _count(body: dict[str, Any]) -> str:
    number = len(body.get("pods") or ())
    return "1 pod" if number == 1 else f"{number} pods"


def _knobs(body: dict[str, Any]) -> str:
    number = len(body.get("changes") or ()) + int(body.get("omitted") or 0)
    return "1 knob" if number == 1 else f"{number} knobs"


def _quota(quota_us: Any) -> str:
    return cfs_quota_text(quota_us if isinstance(quota_us, int) else -1)


def _name(token: str) -> str:
    return token.replace("_", ".").replace("=", "/")


OfRound: TypeAlias = DeletionCostsDecided | DeletionCostsCarriedOut | EvictionRefused


def round_sentence(event: OfRound, uid: str) -> str | None:
    """Return what an event says about one pod; None if it says nothing about it."""
    if isinstance(event, EvictionRefused):
        return f"not evicted in round {event.move.round}: {_refusal(event)}" if event.move.uid == uid else None
    if isinstance(event, DeletionCostsCarriedOut):
        return f"not changed: {event.refused[uid]}" if uid in event.refused else None
    ranked = f"ranked by {event.plugin} (profile {event.profile})"
    return next((f"{each.before or 'none'} -> {each.after}, {ranked}" for each in event.costs if each.uid == uid), None)


def _refusal(refused: EvictionRefused) -> str:
    move = refused.move
    numbers = {code: f" ({each.value} of {each.limit})" for code, each in move.inputs.items()}
    reasons = ", ".join(f"{code}{numbers.get(code, '')}" for code in refused.codes)
    text = f" ({refused.text})" if refused.text else ""
    return f"plugin {move.plugin} (profile {move.profile}) asked for it; refused: {reasons}{text}"
