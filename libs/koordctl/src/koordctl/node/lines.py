"""The state of a node as lines for a terminal: the output of `koord explain node`. Pure.

Each number of a decision has the terms from which it was computed.

Source:
    manager spec, 5, 16, 17.3
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from koordcore.events.nodepolicy import MidTerms, OvercommitTerms
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, LENT
from koordcore.state.aggregates import NodeHealth, NodePolicyState, policy_resources

from koordctl.node.hardware import hardware_lines
from koordctl.node.story import NodeStory
from koordctl.render.console import Line
from koordctl.render.units import amounts_text, cfs_quota_text, cores, gibibytes, sentence_in_cores, time_text

Show = Callable[[int], str]
_QUOTA_PART: Final = re.compile(r"; quota (-?\d+ -> -?\d+ us|[\w. ]+ -> [\w. ]+(?= \())")
"""The part of a reason of a quota change that repeats the old and the new quota."""


def formula_line(resource: str, terms: OvercommitTerms) -> str:
    """How a batch resource was computed, with its numbers in cores or GiB.

    The formula is `batch = capacity - margin - max(system, reserved) - used`. With the policy `request`, it is
    `batch = capacity - margin - reserved - requested`.
    """
    show = shown(resource)
    taken = terms.high_priority_request if terms.policy == "request" else terms.high_priority_used
    what = {"request": "requested", "maxUsageRequest": "used or requested"}.get(terms.policy, "used")
    around = (
        f"reserved {show(terms.reserved)}"
        if terms.policy == "request"
        else f"max(system {show(terms.system_used)}, reserved {show(terms.reserved)})"
    )
    cap = f", at most {show(terms.cap)}" if terms.cap is not None else ""
    return (
        f"batch {resource} {show(terms.result)} = capacity {show(terms.capacity)} - margin {show(terms.margin)}"
        f" - {around} - {what} {show(taken)}{cap}   (policy {terms.policy})"
    )


def mid_line(resource: str, terms: MidTerms) -> str:
    """How a mid resource was computed, with its numbers.

    The formula is `mid = max(min(reclaimable, unused), 0) + share of the unallocated`, at most the cap. In mode
    `static`, it is a fixed ratio of the capacity, at most the cap.
    """
    show = shown(resource)
    head = f"mid {resource} {show(terms.result)} = "
    if terms.mode == "static":
        return f"{head}{show(terms.static_share)} by ratio, at most {show(terms.cap)}   (static)"
    return (
        f"{head}max(min(reclaimable {show(terms.prod_reclaimable)}, unused {show(terms.unused)}), 0)"
        f" + share {show(terms.unallocated_share)} of max(capacity {show(terms.capacity)}"
        f" - {show(terms.system_or_reserved)} system or reserved - requested {show(terms.prod_request)}, 0),"
        f" at most {show(terms.cap)}"
    )


def overcommit_lines(policy: NodePolicyState) -> Iterator[str]:
    """Batch and mid resources: their formulas, published amounts, zones and warnings."""
    for resource, terms in sorted(policy.terms.items()):
        yield formula_line(resource, terms)
        if terms.margin < 0:
            show = shown(resource)
            yield f"  warning: the margin is negative, so the node may lend {show(-terms.margin)} more than it has"
    yield from _published(policy)
    for resource, terms in sorted(policy.mid_terms.items()):
        yield mid_line(resource, terms)
    for name, zone in sorted(policy.zones.items()):
        number = name.removeprefix("node-")  # as the zones of the hardware are named
        yield f"zone {number}: batch cpu {cores(zone.batch_cpu_milli)}, memory {gibibytes(zone.batch_memory_bytes)}"


def _published(policy: NodePolicyState) -> Iterator[str]:
    cpu, computed = policy.batch_cpu_milli, policy.terms.get("cpu")
    if cpu is None or computed is None:
        return
    origin = policy.origin.get(BATCH_CPU, computed.result)
    if origin != computed.result:
        yield f"  batch cpu {cores(origin)} = {cores(computed.result)} * normalization {policy.normalization}"
    for name, show, left in ((BATCH_CPU, cores, cpu), (BATCH_MEMORY, gibibytes, policy.batch_memory_bytes or 0)):
        held = policy.third_party.get(name, 0)
        if held:
            yield f"  {name} {show(left)} = {show(policy.origin.get(name, 0))} - {show(held)} held by third parties"


def promised_lines(policy: NodePolicyState, allocatable: Mapping[str, int]) -> Iterator[str]:
    """Batch and mid resources of which the Node object shows more than was computed, because its pods request it."""
    computed = policy_resources(policy)
    for name in LENT:
        own, least = allocatable.get(name, 0), computed.get(name, 0)
        if policy.computed_at and own > least:
            show = shown("cpu" if name.endswith("-cpu") else "memory")
            yield f"  the Node shows {name} {show(own)}, and {show(least)} was computed: it shows what its pods request"


def other_lines(policy: NodePolicyState) -> Iterator[str]:
    """Ratios, devices, metric collection and health. Parts that the manager has not decided are absent."""
    if policy.ratios_computed:
        normalization = policy.cpu_normalization or "none"
        yield f"cpu normalization {normalization}, amplification {policy.amplification or 'none'}"
        yield from (f"  {name}: {fault}" for name, fault in sorted(policy.ratio_faults.items()))
    if policy.devices:
        yield f"devices {amounts_text(policy.devices)}"
    if policy.metric_policy is not None:
        interval = policy.metric_policy.get("reportIntervalSeconds")
        window = policy.metric_policy.get("aggregateDurationSeconds")
        yield f"reports every {interval} s, averages of {window} s"
    if policy.slo_fault:
        yield f"invalid on the node: {policy.slo_fault}"
    if policy.health is not None:
        yield health_line(policy.health)


def health_line(health: NodeHealth) -> str:
    because = f": {', '.join(health.reasons)}" if health.reasons else ""
    guarded = f" (own {health.weight}: too many nodes look abnormal)" if health.reported_weight != health.weight else ""
    levels = ", ".join(f"{name} {offset:+d}" for name, offset in sorted(health.offsets.items()) if offset)
    weight = f"weight {health.reported_weight}{guarded}"
    level = f"health {health.level} (abnormality {health.abnormality:.2f}{because})"
    return f"{level}, {weight}, threshold offsets {levels or 'as configured'}"


def shown(resource: str) -> Show:
    """The function that formats amounts of a resource: milli-cores as cores for `cpu`, else bytes as GiB."""
    return cores if resource == "cpu" else gibibytes


def node_lines(story: NodeStory, as_of: str = "", *, every: bool = False) -> Iterator[Line]:
    """The output of `koord explain node`.

    Args:
        as_of: Names a past moment for the headline; empty for the present.
        every: Whether the values of the NodeSLO are shown.
    """
    if not story.allocatable:
        yield Line(f"Node {story.name} was deleted; this is its last known state", "bold red")
    yield Line(f"Node {story.name}{as_of}: {story.host or 'no agent yet'}", "bold")
    yield from _status_lines(story)
    yield Line(f"  allocatable {amounts_text(story.allocatable)}")
    if story.kept_back:
        yield Line(f"  reserved on the node {amounts_text(story.kept_back)}: pods do not get it")
    yield from _usage_lines(story)
    yield from (Line(f"  problem: {problem}", "yellow") for problem in story.problems)
    if story.hardware is not None:
        yield Line("  hardware", "bold")
        yield from (Line(f"    {line}") for line in hardware_lines(story.hardware))
    yield Line("  overcommit", "bold")
    if story.batch_cpu_milli is None:
        yield Line(f"    no batch resources: {story.overcommit_reason or 'not computed yet'}")
    yield from (Line(f"    {line}") for line in (overcommit_lines(story.policy) if story.policy else ()))
    if story.policy is not None:
        yield from (Line(f"    {line}") for line in promised_lines(story.policy, story.allocatable))
    if story.terms:
        yield Line(f"    published {time_text(story.overcommit_at)}: {story.overcommit_reason}")
    others = list(other_lines(story.policy)) if story.policy else []
    if others:
        yield Line("  other decisions", "bold")
    yield from (Line(f"    {line}") for line in others)
    yield Line("  best-effort cpu", "bold")
    told = f", reported {time_text(story.changes[-1].at)}" if story.changes else ""
    yield Line(f"    quota {cfs_quota_text(story.be_quota_us)}{told}")
    for change in story.changes:
        step = f"{cfs_quota_text(change.old_us)} -> {cfs_quota_text(change.new_us)}"
        why = sentence_in_cores(_QUOTA_PART.sub("", change.reason))
        yield Line(f"    {time_text(change.at)}  {step}: {why}")
    if story.protection or story.contended:
        yield Line("  protection", "bold")
    yield from (Line(f"    interference: {disturbed}", "yellow") for disturbed in story.contended)
    yield from (Line(f"    {time_text(told.at)}  {told.what:<12} {told.sentence}") for told in story.protection)
    leaves = list(_leaves(story.slo or {}))
    if every or not leaves:
        yield Line("  NodeSLO in force", "bold")
        yield from (Line(f"    {leaf}") for leaf in leaves or ["defaults (none rendered)"])
    else:
        yield Line(f"  NodeSLO in force: {len(leaves)} values, --all shows them")


def _status_lines(story: NodeStory) -> Iterator[Line]:
    """Whether new pods may come, in the words of `koord get nodes`, and why not."""
    if not story.allocatable:
        return
    status = {"True": "Ready", "Unknown": "Unknown"}.get(story.ready, "NotReady")
    yield Line(f"  status {status}", "" if status == "Ready" else "red")
    yield from (Line(f"  condition {condition}", "red") for condition in story.problem_conditions)
    yield from (Line(f"  condition {condition}") for condition in story.other_conditions)
    if story.drain:
        yield Line(f"  closed for new pods by drain {story.drain}", "yellow")
    if story.cordoned:
        yield Line(f"  cordoned: closed for new pods until `koord uncordon {story.name}`", "yellow")
    if story.taints:
        yield Line(f"  taints {', '.join(story.taints)}", "yellow")


def _usage_lines(story: NodeStory) -> Iterator[Line]:
    sample = story.sample
    if sample is None:
        yield Line(f"  {story.running} running pods, no report yet")
        return
    yield Line(
        f"  uses {cores(sample.node.cpu_milli)} cores, {gibibytes(sample.node.memory_bytes)}"
        f" (system {cores(sample.system.cpu_milli if sample.system else None)} cores, best effort"
        f" {cores(sample.best_effort.cpu_milli)} cores)"
    )
    measured = "" if sample.pods is None else f", {sample.pods} measured"
    yield Line(f"  {story.running} running pods{measured}, reported {time_text(sample.at)}")


def _leaves(value: object, path: str = "") -> Iterator[str]:
    """One line of the form `a.b.c = value` for each value in nested mappings."""
    if isinstance(value, dict):
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]  # decoded JSON
            yield from _leaves(item, f"{path}.{name}" if path else str(name))  # pyright: ignore[reportUnknownArgumentType]  # decoded JSON
    else:
        yield f"{path} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
