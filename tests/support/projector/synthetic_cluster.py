"""A believable three hours of a cluster, as events: what the dashboard's tests and the pictures in the README show.

Nodes register, their agents start, latency-sensitive pods arrive in the morning and use part of what they request, the
manager offers the unused part as batch resources, best-effort pods take it and are held back when the others need it.
Deterministic in its arguments.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from koordcore.events import CATALOGUE
from koordcore.events.envelope import (
    AggregateRef,
    BasedOn,
    Draft,
    Event,
    Origin,
    StoredEvent,
    name_from_token,
    name_token,
)
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pod_on_node
from koordcore.events.nodestate import AgentStarted, PodsStarted, PodsStopped
from koordcore.events.objects import (
    CustomObjectObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    PodSpecAdded,
    PodSpecDeleted,
    custom_ref,
)
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.events.pod import NodeScore, PlacementExplanation, PluginExclusion, PodPlaced, PodReleased
from koordcore.protocol.reservations import reservation_from_json, reserve_pod
from koordcore.values.allocation import Allocation, ReservationUse
from koordcore.values.timestamps import rfc3339
from support.projector.synthetic_colocation import (
    GANG,
    Written,
    configuration,
    disturbance,
    eviction,
    gang_members,
    recommendation,
    suppression,
)
from support.projector.synthetic_descheduling import migration_of, round_of
from support.projector.synthetic_hardware import SyntheticHardware
from support.projector.synthetic_machines import (
    GIB,
    Load,
    Machine,
    arrived,
    hash_text,
    node_of,
    pod_of,
    spare_reservation,
    suspect_of,
)
from support.projector.synthetic_placing import feasible_machines, hold, score
from support.projector.synthetic_reclaiming import overcommit, suppress

BEGIN = datetime(2026, 11, 20, 7, 0, tzinfo=UTC)
SHAPES = ((16, 64, 0), (32, 128, 0), (32, 256, 0), (64, 256, 0), (96, 384, 8), (96, 768, 0))
TEAMS = {"checkout": "LS", "search": "LS", "recommend": "LSR", "billing": "LS", "etl": "BE", "training": "BE"}
REPORT_MINUTES = 5


@dataclass
class Message:
    """One message of a lossy stream, to be published in order."""

    ref: AggregateRef
    event: Event
    origin: Origin


class SyntheticCluster:
    """Writes itself when it is made: `facts`, `reports`, `explanations`.

    evil_name   ends the name of one pod: text that a page must not run
    """

    def __init__(
        self, *, nodes: int = 300, pods: int = 2000, minutes: int = 180, seed: int = 7, evil_name: str = ""
    ) -> None:
        self.facts: list[StoredEvent] = []
        self.reports: list[Message] = []
        self.explanations: list[Message] = []
        self._random = random.Random(seed)
        self._now = BEGIN
        self._minutes = minutes
        self._machines = [self._machine(number) for number in range(nodes)]
        self._waiting: list[Load] = []
        self._placed: list[Load] = []
        self._pods = pods
        self._submitted = 0
        self._evil_name = evil_name
        self._live()

    def _machine(self, number: int) -> Machine:
        cpu, memory, gpus = self._random.choices(SHAPES, weights=(3, 4, 2, 4, 2, 1))[0]
        zone = "abc"[number % 3]
        name, phase = f"node-{zone}-{number:03d}", self._random.uniform(0, 0.6)
        hardware = SyntheticHardware(name, cpu, gpus)
        return Machine(name, cpu * 1000, memory * GIB, gpus, phase=phase, hardware=hardware)

    def _live(self) -> None:
        for machine in self._machines:
            self._tick(0.02)
            self._write("nodespec", name_token(machine.name), NodeSpecAdded(object=node_of(machine)), "manager/0")
        for machine in self._machines:
            self._tick(0.02)
            started = AgentStarted(host="simulated", version="0.1.0")
            self._write("nodestate", name_token(machine.name), started, f"agent/{machine.name}")
        for machine in self._machines:
            hardware = machine.hardware
            assert hardware is not None
            reported = {"noderesourcetopologies": hardware.topology, "devices": hardware.device}
            for plural, document in reported.items():
                if document is not None:
                    id_ = custom_ref(plural, "", machine.name).id
                    self._write("customspec", id_, CustomObjectObserved(object=document), "manager/0")
        self._reserve(self._machines[0])
        for minute in range(self._minutes):
            self._now = max(self._now, BEGIN + timedelta(minutes=minute))
            wanted = int(self._pods * arrived(minute / self._minutes)) - self._submitted
            for _ in range(max(0, wanted)):
                self._submit()
            self._schedule()
            self._end_some()
            if minute % REPORT_MINUTES == 4:
                self._report(minute)
                self._deschedule(minute)
            if minute == self._minutes // 2:
                for machine in self._random.sample(self._machines, min(4, len(self._machines))):
                    machine.unschedulable = True
                    changed = NodeSpecChanged(object=node_of(machine))
                    self._write("nodespec", name_token(machine.name), changed, "manager/0")
        self._colocate()

    def _submit(self) -> None:
        number = self._submitted
        self._submitted += 1
        self._tick(self._random.uniform(0.005, 0.4))
        team = self._random.choices(list(TEAMS), weights=(4, 3, 2, 2, 4, 3))[0]
        best_effort = TEAMS[team] == "BE"
        cpu = self._random.choice((500, 1000, 2000, 4000, 8000)) * (1 if best_effort else 2)
        memory = cpu // 500 * GIB
        gpus = self._random.choice((1, 2, 4, 8)) if team == "recommend" and self._random.random() < 0.5 else 0
        if number % 97 == 13:
            cpu, memory = 128_000, 900 * GIB  # no node is that large
        load = Load(
            uid=f"{self._random.getrandbits(32):08x}-0000-4000-8000-{number:012x}",
            namespace=team,
            name=f"{team}-{self._random.choice(('api', 'worker', 'cache', 'batch'))}-{number:05d}"
            + (self._evil_name if number == 30 else ""),
            qos=TEAMS[team],
            cpu=cpu,
            memory=memory,
            gpus=gpus,
            share=self._random.uniform(0.15, 0.55) if not best_effort else self._random.uniform(0.6, 1.0),
            queued_at=rfc3339(self._now),
        )
        if best_effort or self._random.random() < 0.1:
            load.ends = self._now + timedelta(minutes=self._random.uniform(15, 120))
        self._write("podspec", load.uid, PodSpecAdded(object=pod_of(load)), "manager/0", load.uid)
        self._waiting.append(load)

    def _schedule(self) -> None:
        still: list[Load] = []
        for load in self._waiting:
            self._tick(self._random.uniform(0.002, 0.02))
            load.attempts += 1
            feasible, exclusions = feasible_machines(self._machines, load)
            if not feasible:
                if load.attempts in (1, 2, 4, 8, 16, 32, 64, 128):
                    self._judge(load, exclusions)
                still.append(load)
                continue
            scored = sorted((score(load, machine) for machine in feasible), key=lambda s: (-s.total, s.node))
            self._place(load, scored, exclusions, len(feasible))
        self._waiting = still

    def _judge(self, load: Load, exclusions: list[PluginExclusion]) -> None:
        told = [f"{count} {reason}" for part in exclusions for reason, count in part.reasons.items()]
        message = f"0/{len(self._machines)} nodes are available: {', '.join(told)}."
        explanation = PodUnschedulable(
            namespace=load.namespace,
            name=load.name,
            attempt=load.attempts,
            queued_at=load.queued_at,
            message=message,
            explanation=self._explanation([], exclusions, 0),
        )
        origin = self._origin(f"attempt/{load.uid}/{load.attempts}", load.uid, "scheduler/0")
        self.explanations.append(Message(AggregateRef("pod", load.uid), explanation, origin))

    def _place(self, load: Load, scored: list[NodeScore], exclusions: list[PluginExclusion], feasible: int) -> None:
        by_name = {machine.name: machine for machine in self._machines}
        machine = by_name[scored[0].node]
        pod = pod_of(load)
        assert machine.hardware is not None
        shares_a_card = load.gpus == 1 and hash_text(load.uid) % 4 > 0
        allocation = machine.hardware.take(
            load.uid,
            bound_cpus=load.cpu // 1000 if load.qos == "LSR" else 1,
            whole_gpus=0 if shares_a_card else load.gpus,
            share=hash_text(load.name) % 3 * 20 + 20 if shares_a_card else 0,
        )
        on_node = pod_on_node(load.uid, pod, allocation)
        placed = PodPlaced(
            namespace=load.namespace,
            name=load.name,
            node=machine.name,
            requests=on_node.requests,
            attempt=load.attempts,
            queued_at=load.queued_at,
            explanation=self._explanation(scored[:5], exclusions, feasible),
            allocation=allocation,
        )
        self._write("pod", load.uid, placed, "scheduler/0", load.uid)
        self._write("node", name_token(machine.name), NodeResourcesTaken(pods=[on_node]), "scheduler/0", load.uid)
        hold(load, machine, 1)
        machine.pods[load.uid] = load
        load.machine = machine
        self._placed.append(load)
        self._tick(self._random.uniform(0.05, 0.3))
        started = PodsStarted(pods=[load.uid])
        self._write("nodestate", name_token(machine.name), started, f"agent/{machine.name}", load.uid)

    def _explanation(
        self, top: list[NodeScore], exclusions: list[PluginExclusion], feasible: int
    ) -> PlacementExplanation:
        return PlacementExplanation(
            nodes_considered=len(self._machines),
            nodes_feasible=feasible,
            exclusions=exclusions,
            top=top,
            policy_version="6f2c1e",
            based_on=BasedOn(len(self.facts), len(self.reports)),
        )

    def _end_some(self) -> None:
        over = [load for load in self._placed if load.ends is not None and load.ends <= self._now]
        for load in over:
            self._placed.remove(load)
            machine = load.machine
            assert machine is not None
            token = name_token(machine.name)
            self._tick(0.1)
            self._write("nodestate", token, PodsStopped(pods=[load.uid]), f"agent/{machine.name}", load.uid)
            gone = PodSpecDeleted(namespace=load.namespace, name=load.name)
            self._write("podspec", load.uid, gone, "manager/0", load.uid)
            released = PodReleased(namespace=load.namespace, name=load.name, node=machine.name, reason="deleted")
            self._write("pod", load.uid, released, "scheduler/0", load.uid)
            self._write("node", token, NodeResourcesReturned(pods=[load.uid]), "scheduler/0", load.uid)
            hold(load, machine, -1)
            del machine.pods[load.uid]
            if machine.hardware is not None:
                machine.hardware.give_back(load.uid)

    def _report(self, minute: int) -> None:
        day = 0.75 + 0.35 * math.sin(minute / self._minutes * math.pi)
        for machine in self._machines:
            self._tick(0.005)
            usages: list[PodUsage] = []
            busy = high = 0
            wave = day + 0.15 * math.sin(minute / 11 + machine.phase * 9)
            for load in sorted(machine.pods.values(), key=lambda each: each.qos == "BE"):
                used = int(load.cpu * min(1.0, load.share * wave * self._random.uniform(0.85, 1.15)))
                if load.qos == "BE":
                    used = min(used, max(0, int(machine.cpu * 0.65) - busy))
                else:
                    high += used
                busy += used
                usage = Usage(used, int(load.memory * min(1.0, load.share + 0.2)))
                band = "koord-batch" if load.qos == "BE" else "koord-prod"
                usages.append(
                    PodUsage(
                        uid=load.uid,
                        namespace=load.namespace,
                        name=load.name,
                        priority_class=band,
                        qos=load.qos,
                        usage=usage,
                    )
                )
            system = Usage(machine.cpu // 50, 2 * GIB)
            memory = sum(usage.usage.memory_bytes for usage in usages) + system.memory_bytes
            report = NodeUsageReported(
                updated_at=rfc3339(self._now),
                report_interval_seconds=REPORT_MINUTES * 60,
                aggregate_duration_seconds=300,
                node_usage=Usage(busy + system.cpu_milli, memory),
                system_usage=system,
                pods=usages,
                be_quota_us=machine.quota_us,
            )
            ref = AggregateRef("node", name_token(machine.name))
            origin = self._origin(f"report/{machine.name}/{minute}", machine.name, f"agent/{machine.name}")
            self.reports.append(Message(ref, report, origin))
            token, based_on = name_token(machine.name), BasedOn(len(self.facts), len(self.reports))
            offered = overcommit(machine, high, system, rfc3339(self._now), based_on)
            if offered is not None:
                self._write("nodepolicy", token, offered, "manager/0")
            suppressed = suppress(machine, busy, high, system)
            if suppressed is not None:
                self._write("nodestate", token, suppressed, f"agent/{machine.name}")

    def _tick(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def _origin(self, causation: str, correlation: str, actor: str) -> Origin:
        trace = f"{abs(hash_text(correlation)):032x}"[-32:]
        return Origin(
            causation_id=causation,
            correlation_id=correlation,
            actor=actor,
            occurred_at=rfc3339(self._now),
            based_on=len(self.facts),
            traceparent=f"00-{trace}-{len(self.facts) + 1:016x}-01",
        )

    def _deschedule(self, minute: int) -> None:
        """Publish a round of the descheduler. The last one of the day moves a pod."""
        newest = {name_from_token(each.ref.id): each.event for each in self.reports[-len(self._machines) :]}
        reports = {name: event for name, event in newest.items() if isinstance(event, NodeUsageReported)}
        found = round_of(reports, {machine.name: machine.cpu for machine in self._machines})
        origin = self._origin(f"round/{minute}", "descheduler", "descheduler/0")
        self.explanations.append(Message(AggregateRef("round", "descheduler"), found, origin))
        moved = [attempt for attempt in found.attempts if attempt.result == "success"]
        under = found.classified[0].under
        if minute + REPORT_MINUTES >= self._minutes and moved and under:
            for event in migration_of(moved[0], under[0]):
                self._write("migration", "5eee0000-0000-4000-8000-000000000002", event, "descheduler/0", moved[0].uid)

    def _colocate(self) -> None:
        """Write what only a few clusters have: disturbed pods, an eviction, a gang, configuration, a recommendation."""
        written: list[Written] = [*configuration(), *gang_members(), recommendation(BEGIN)]
        shared = [machine for machine in self._machines if {"LS", "BE"} <= {each.qos for each in machine.pods.values()}]
        for number, machine in enumerate(shared[:3]):
            loads = sorted(machine.pods.values(), key=lambda load: load.uid)
            victim, suspect = (next(each for each in loads if each.qos == qos) for qos in ("LS", "BE"))
            disturbed, disturbing = suspect_of(victim, 0.0), suspect_of(suspect, 0.87)
            written += disturbance(machine.name, disturbed, disturbing, number, lasts=number == 0)
            if number == 1:
                smallest = min(load.cpu for load in loads if load.qos == "BE")
                written += [suppression(machine.name, smallest // 2), eviction(machine.name, disturbing)]
            if number == 2:
                requested = sum(load.cpu for load in loads if load.qos == "BE")
                written.append(suppression(machine.name, requested))
        for kind, id_, event, actor in written:
            self._tick(0.05)
            self._write(kind, id_, event, actor, id_)
        message = f"0/{len(self._machines)} nodes are available: {len(self._machines)} Insufficient memory."
        for _, uid, event, _ in gang_members():
            assert isinstance(event, PodSpecAdded)
            explanation = PodUnschedulable(
                namespace=GANG[0],
                name=event.object.metadata.name,
                attempt=1,
                queued_at=rfc3339(self._now),
                message=message,
                explanation=self._explanation([], [], 0),
            )
            origin = self._origin(f"attempt/{uid}/1", uid, "scheduler/0")
            self.explanations.append(Message(AggregateRef("pod", uid), explanation, origin))

    def _reserve(self, machine: Machine) -> None:
        """Reserve two CPUs of a machine that no pod takes."""
        self._tick(0.02)
        uid = "5eee0000-0000-4000-8000-000000000001"
        document = spare_reservation(uid, rfc3339(self._now))
        self._write(
            "customspec", custom_ref("reservations", "", "spare").id, CustomObjectObserved(object=document), "a"
        )
        reserved = reserve_pod(reservation_from_json(document))
        entry = pod_on_node(uid, reserved, Allocation(reservation=ReservationUse(name="spare", uid=uid)))
        placed = PodPlaced(
            namespace="default",
            name="spare",
            node=machine.name,
            requests=entry.requests,
            attempt=1,
            queued_at=rfc3339(self._now),
            explanation=self._explanation([], [], len(self._machines)),
            allocation=entry.allocation,
        )
        self._write("pod", uid, placed, "scheduler/0", uid)
        self._write("node", name_token(machine.name), NodeResourcesTaken(pods=[entry]), "scheduler/0", uid)

    def _write(self, kind: str, id_: str, event: Event, actor: str, correlation: str = "") -> None:
        seq = len(self.facts) + 1
        origin = self._origin(f"synthetic/{seq}", correlation or id_, actor)
        sealed = CATALOGUE.seal([Draft(AggregateRef(kind, id_), event, 0)], origin)[0]
        self.facts.append(StoredEvent(seq, sealed.ref, sealed.headers, sealed.body, seq * 1_000_000))


def small() -> Sequence[StoredEvent]:
    """Facts of a dozen nodes and sixty pods."""
    return SyntheticCluster(nodes=12, pods=60).facts
