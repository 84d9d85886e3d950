"""Desired state of the node for the agent: pods, suppression policy, collect policy.

It is created from the desired state in the bucket and updated by pushes. `apply_push` detects a missed push.

Source: event-bus spec, 3.3; agent spec, 2.1, 7.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import msgspec
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode, pods_after
from koordcore.events.nodepolicy import NodeMetricPolicyRendered, NodeSloRendered
from koordcore.ports.desired import DesiredNode, Push
from koordcore.protocol.config.fields import JsonValue, typed
from koordcore.protocol.config.node_slo import complete_node_slo
from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.resource_names import CPU
from koordcore.values import codec
from koordcore.values.allocation import is_reservation
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import of_milli, of_value
from koordcore.values.resources import Amounts, ResourceList

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver, HostApplication
from koord_agent.domain.node.pods import AgentPod, agent_pod_of_ledger, node_reserved_milli
from koord_agent.domain.node.policies import CollectPolicy, collect_policy_of, section

THRESHOLD_SECTION = "resourceUsedThresholdWithBE"
LEDGER = "node"
"""Kind of the aggregate of a node's ledger."""
RENDERED_KINDS = 64
"""Largest number of parsed NodeSLOs in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredView:
    """Desired state of the node as the agent uses it. It is immutable and replaced as a whole."""

    desired: DesiredNode  # The desired state with all pushes since it was read; it is stored on disk
    node: str
    # UID -> pod, of the node's ledger and of pods that another scheduler bound to the node.
    pods: Mapping[str, AgentPod]
    # Settings of CPU suppression. None: no valid NodeSLO so far, so that no limit is set or lifted.
    policy: ThresholdStrategy | None
    policy_problem: str  # What of the newest NodeSLO is invalid; its last valid settings stay. "": nothing is.
    collect: CollectPolicy
    capacity_milli: int
    reserved_milli: int
    collect_problem: str = ""  # Reason why the newest collect policy was refused; "": it was accepted
    slo: Mapping[str, Any] | None = None  # NodeSLO as JSON with defaults; None if there was no valid one so far
    # Processes outside Kubernetes that the NodeSLO names; empty without a NodeSLO (D-1).
    host_applications: tuple[HostApplication, ...] = ()
    # Capacity of the node object: CPU in milli-cores, other resources in whole units.
    capacity: Amounts = field(default_factory=dict[str, int])
    allocatable: Amounts = field(default_factory=dict[str, int])  # Allocatable of the node object, in the same units
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    # Highest known position of a fact of the node's ledger; 0 if no later one is known than in `as_of`.
    ledger_seq: int = 0

    @property
    def misses_facts(self) -> bool:
        """Whether the log has facts of the node's ledger that this state does not contain."""
        return self.as_of.get(LEDGER, 0) < self.ledger_seq

    @property
    def may_be_old(self) -> bool:
        """Whether to read the desired state from the KV bucket again.

        True while facts of the ledger are missing. True also while pods wait for volume claims, because no pushed fact
        reports that a claim got its volume.
        """
        return self.misses_facts or bool(self.desired.unbound)

    @property
    def as_of(self) -> Mapping[str, int]:
        """Kind of an aggregate -> position of its last fact that this state contains."""
        return self.desired.as_of


def suppress_policy(slo: Mapping[str, object] | None) -> ThresholdStrategy | None:
    """From a NodeSLO (JSON with defaults). None if it, its threshold strategy or the field `enable` is absent.

    Raises:
        InvalidInput: A field has a wrong type; the message names it.

    Source: agent spec, 2.1 (rule), 4.2.
    """
    written = (slo or {}).get(THRESHOLD_SECTION)
    if written is None:
        return None
    effective = complete_node_slo({THRESHOLD_SECTION: cast("JsonValue", written)})
    if section(slo, THRESHOLD_SECTION).get("enable") is None:
        return None
    return typed(ThresholdStrategy, section(effective, THRESHOLD_SECTION))


def view_of(desired: DesiredNode, last: DesiredView | None = None) -> DesiredView:
    """Parse a desired state that was read from the bucket.

    The settings of `last`, the state until now, stay if the new NodeSLO is invalid.
    """
    slo = _slo_or_last(desired.slo, last)
    collect, collect_problem = _collect_or_last(desired.metric_policy, last)
    return DesiredView(
        desired=desired,
        node=desired.node,
        pods={
            **_others(desired),
            **{
                entry.uid: agent_pod_of_ledger(entry, desired.details.get(entry.uid))
                for entry in _pods_of(desired.pods)
            },
        },
        policy=slo.policy,
        policy_problem=slo.problem,
        slo=slo.effective,
        host_applications=slo.host_applications,
        capacity=desired.capacity,
        allocatable=desired.allocatable,
        labels=desired.labels,
        annotations=desired.annotations,
        collect=collect,
        collect_problem=collect_problem,
        capacity_milli=desired.capacity.get(CPU, 0),
        reserved_milli=node_reserved_milli(
            _quantities(desired.capacity), _quantities(desired.allocatable), desired.annotations
        ),
    )


def _pods_of(entries: Iterable[PodOnNode]) -> Iterator[PodOnNode]:
    """A Reservation of the ledger holds resources, and nothing runs in it."""
    return (entry for entry in entries if not is_reservation(entry.uid, entry.allocation))


def _others(desired: DesiredNode) -> dict[str, AgentPod]:
    return {entry.uid: agent_pod_of_ledger(entry) for entry in desired.others}


class _Slo(NamedTuple):
    policy: ThresholdStrategy | None
    effective: Mapping[str, Any] | None
    host_applications: tuple[HostApplication, ...]
    problem: str


def _slo_or_last(slo: Mapping[str, Any] | None, last: DesiredView | None) -> _Slo:
    """Of each invalid section, the last valid settings stay; the others are in force (reality, 4.17)."""
    if slo is None:
        return _Slo(None, None, (), "")
    try:
        return _slo_of(codec.encode(slo))
    except InvalidInput:
        pass
    kept, problems = dict(slo), list[str]()
    for name, part in slo.items():
        try:
            _slo_of(codec.encode({name: part}))
        except InvalidInput as error:
            problems.append(str(error))
            del kept[name]
            if last is not None and last.slo is not None and name in last.slo:
                kept[name] = last.slo[name]
    found = _slo_of(codec.encode(kept))
    if THRESHOLD_SECTION in slo and not _is_valid(slo[THRESHOLD_SECTION]):
        found = found._replace(policy=None if last is None else last.policy)
    return found._replace(problem="; ".join((*problems, found.problem) if found.problem else problems))


def _is_valid(threshold: object) -> bool:
    try:
        suppress_policy({THRESHOLD_SECTION: threshold})
    except InvalidInput:
        return False
    return True


@lru_cache(maxsize=RENDERED_KINDS)
def _slo_of(spec: bytes) -> _Slo:
    """Nodes with the same NodeSLO share the result. Raise InvalidInput if a section is invalid."""
    slo = codec.decode(spec, dict[str, Any])
    applications, problems = host_applications_of(slo)
    return _Slo(suppress_policy(slo), complete_node_slo(slo), applications, "; ".join(problems))


def _collect_or_last(written: Mapping[str, Any], last: DesiredView | None) -> tuple[CollectPolicy, str]:
    """Return the collect policy, and the reason why it was refused; "" if it is valid.

    If it is refused, the last valid policy is returned, or the defaults if there was none.
    """
    try:
        return collect_policy_of(written).effective(), ""
    except InvalidInput as error:
        return CollectPolicy() if last is None else last.collect, f"metricCollectPolicy: {error}"


class _CgroupPath(msgspec.Struct, rename="camel"):
    base: str = ""
    parent_dir: str = ""
    relative_path: str = ""


class _HostApplication(msgspec.Struct, rename="camel"):
    name: str
    priority: str = ""
    qos: str = ""
    cgroup_path: _CgroupPath | None = None


def host_applications_of(slo: Mapping[str, Any] | None) -> tuple[tuple[HostApplication, ...], tuple[str, ...]]:
    """Return the valid host applications of a NodeSLO (JSON) in its order, and why others are left out.

    None without a NodeSLO (D-1). An entry is left out if a field has a wrong type, its name is missing or was used
    before, or its cgroup path is invalid.

    Source: agent spec, 3.3; reality, 4.17.
    """
    entries = (slo or {}).get("hostApplications") or ()
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return (), (str(InvalidInput("a list", entries, "hostApplications")),)
    found: dict[str, HostApplication] = {}
    problems: list[str] = []
    for index, raw in enumerate(cast("Sequence[object]", entries)):
        try:
            application = _host_application(raw)
            _ANY_LAYOUT.host_application_directory(application)
        except (codec.DecodeError, ValueError) as error:
            problems.append(f"hostApplications[{index}] is left out: {error}")
            continue
        if application.name in found:
            problems.append(f"hostApplications[{index}] is left out: there is another one named {application.name!r}")
            continue
        found[application.name] = application
    return tuple(found.values()), tuple(problems)


_ANY_LAYOUT: Final = CgroupLayout(Driver.CGROUPFS)
"""Paths are valid with each driver or with none."""


def _host_application(raw: object) -> HostApplication:
    written = codec.convert(raw, _HostApplication)
    path = written.cgroup_path
    return HostApplication(
        name=written.name,
        qos=written.qos,
        priority=written.priority,
        base=None if path is None else path.base,
        parent_dir="" if path is None else path.parent_dir,
        relative_path="" if path is None else path.relative_path,
    )


def _quantities(amounts: Amounts) -> ResourceList:
    return {name: of_milli(amount) if name == CPU else of_value(amount) for name, amount in amounts.items()}


def apply_push(view: DesiredView, push: Push) -> DesiredView | None:
    """Apply a fact that the log pushed to the agent. The state is the old one if it already contains the fact.

    None if earlier facts were missed, so the desired state must be read again.

    Raises:
        UnreadableEvent: The fact is newer than this agent can read.

    Source: event-bus spec, 3.3.
    """
    kind, known = push.event.ref.kind, view.as_of.get(push.event.ref.kind, 0)
    if push.event.seq <= known:
        return view
    if push.last_seq != known:
        return None
    desired = msgspec.structs.replace(view.desired, as_of={**view.as_of, kind: push.event.seq})
    match CATALOGUE.read(push.event):
        case NodeResourcesTaken() | NodeResourcesReturned() as event:
            before = {entry.uid: entry for entry in desired.pods}
            after = pods_after(before, event)
            details = {uid: each for uid, each in desired.details.items() if uid in after}
            unbound = [
                uid
                for uid, entry in after.items()
                if uid in desired.unbound
                or (desired.binds_pods and entry.allocation.volume_claims and before.get(uid) is not entry)
            ]
            desired = msgspec.structs.replace(desired, pods=list(after.values()), details=details, unbound=unbound)
            pods = {
                entry.uid: view.pods[entry.uid]
                if before.get(entry.uid) is entry
                else agent_pod_of_ledger(entry, details.get(entry.uid))
                for entry in _pods_of(after.values())
            }
            return replace(view, desired=desired, pods={**_others(desired), **pods})
        case NodeSloRendered() as rendered:
            slo = _slo_or_last(rendered.spec, view)
            return replace(
                view,
                desired=msgspec.structs.replace(desired, slo=rendered.spec),
                policy=slo.policy,
                policy_problem=slo.problem,
                slo=slo.effective,
                host_applications=slo.host_applications,
            )
        case NodeMetricPolicyRendered() as rendered:
            collect, problem = _collect_or_last(rendered.spec, view)
            desired = msgspec.structs.replace(desired, metric_policy=rendered.spec)
            return replace(view, desired=desired, collect=collect, collect_problem=problem)
        case _:
            return replace(view, desired=desired)


def is_behind(read: Mapping[str, int], known: Mapping[str, int]) -> bool:
    """Whether the state that was read contains fewer facts of any aggregate than the known one. Both are `as_of`."""
    return any(read.get(kind, 0) < seq for kind, seq in known.items())


def is_of_log(view: DesiredView, last: StoredEvent | None) -> bool:
    """Return whether a state has the node's ledger up to its last fact or the one before, so that it is of this log.

    A state of another log, for example from before a genesis (a new log), has other positions. False without a last
    fact (None: there is none, or it could not be read).
    """
    return last is not None and view.as_of.get(LEDGER, 0) in (last.seq, last.expected_last)


def with_last_fact(view: DesiredView, last: StoredEvent | None) -> DesiredView:
    """Return a state after it was compared with the last fact of the node's ledger; None as for `is_of_log`.

    If the state misses only this fact, the fact is applied. If it misses more, its pods are as they were, and
    `misses_facts` is true.

    Raises:
        UnreadableEvent: The fact is newer than this agent can read.
    """
    if last is None or last.seq <= view.as_of.get(LEDGER, 0):
        return view
    before = -1 if last.expected_last is None else last.expected_last
    return apply_push(view, Push(last, before)) or replace(view, ledger_seq=last.seq)
