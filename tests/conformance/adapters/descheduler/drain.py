"""Vectors of the drain controller of the descheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from conformance.registry import Json, adapter
from koord_descheduler.domain.drain.group_drain import GroupPlan, GroupView, StopReason, confirmed, next_node
from koord_descheduler.domain.drain.node_drain import DrainView, look
from koord_descheduler.domain.drain.progress import (
    Cordon,
    CreateJob,
    CreateReservation,
    DeleteJob,
    DeleteReservation,
    DrainEffect,
    DrainProgress,
)
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.limits import expected_replicas_refusals
from koord_descheduler.domain.jobs.plugin import BaseFilter
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView
from koord_descheduler.domain.view.workloads import WorkloadView
from koordcore.protocol.drains import ConfirmState, DrainNode, DrainNodeGroup
from koordcore.protocol.objects import object_from_json
from koordcore.protocol.reservation_status import AVAILABLE, ReservationOwner, ReservationStatus
from koordcore.values.invalid import InvalidInput
from support.descheduler.views import node_view_from_json, pod_view_from_json

START = datetime.fromisoformat("2026-01-01T00:00:00Z").timestamp()


@dataclass(slots=True)
class _World:
    """The objects around a drain; effects change them at once."""

    drain: DrainNode
    workloads: dict[str, int]
    pods: dict[str, PodView]
    node: bool = True
    reservations: dict[str, ReservationStatus] = field(default_factory=dict[str, ReservationStatus])
    others: dict[str, ReservationStatus] = field(default_factory=dict[str, ReservationStatus])
    jobs: dict[str, str] = field(default_factory=dict[str, str])
    cordoned: bool = False
    now: float = START

    def apply(self, effect: DrainEffect) -> None:
        if isinstance(effect, CreateReservation):
            self.reservations[effect.name] = ReservationStatus()
        elif isinstance(effect, DeleteReservation):
            self.reservations.pop(effect.name, None)
        elif isinstance(effect, CreateJob):
            self.jobs[effect.name] = ""
        elif isinstance(effect, DeleteJob):
            self.jobs.pop(effect.name, None)
        else:
            self.cordoned = isinstance(effect, Cordon)

    def refusals(self, pod: PodView) -> tuple[str, ...]:
        args = MigrationControllerArgs()
        if pod.has_evict_annotation:
            return ()
        workloads = {uid: WorkloadView(replicas, (uid,)) for uid, replicas in self.workloads.items()}
        cluster = ClusterView(now=self.now, nodes=(), pods=(), workloads=workloads)
        return (*BaseFilter(args, {}).refusals(pod), *expected_replicas_refusals(pod, cluster, args))

    def view(self) -> DrainView:
        node = self.drain.spec.node_name
        return DrainView(
            drain=self.drain,
            now=self.now,
            node_exists=self.node,
            pods=[pod for pod in self.pods.values() if pod.node == node],
            reservations={**self.reservations, **self.others},
            jobs=self.jobs,
            refusals=self.refusals,
            scheduler_names=frozenset(MigrationControllerArgs().scheduler_names),
        )


@adapter(
    "descheduler.drain_node",
    exact_text=("phase", "pods", "reservations", "jobs", "conditions"),
    whole=("pods",),
    sets=("reservations", "jobs", "conditions"),
)
def drain_node(given: dict[str, Json]) -> dict[str, Json]:
    """The steps of a drain until nothing changes (descheduler spec, 11.2)."""
    pods = [pod_view_from_json(raw) for raw in given.get("pods") or ()]
    world = _World(
        drain=object_from_json(given["drainNode"], DrainNode),
        workloads=given.get("workloads") or {},
        pods={pod.key: pod for pod in pods},
        node=given.get("node") is not None,
        others={name: _status(raw) for name, raw in _named(given.get("otherReservations"))},
    )
    progress, answers = DrainProgress(), list[Json]()
    for step in given["steps"]:
        _happen(world, step)
        settled = False
        while not settled:
            outcome = look(world.view(), progress)
            settled = not outcome.effects and outcome.progress == progress
            progress = outcome.progress
            for effect in outcome.effects:
                world.apply(effect)
        answers.append(
            {
                "phase": progress.phase,
                "pods": {each.key: each.phase for each in progress.pods.values()},
                "reservations": sorted(world.reservations),
                "jobs": sorted(world.jobs),
                "cordoned": world.cordoned,
                "conditions": sorted(progress.conditions),
            }
        )
    return {"steps": answers}


def _named(raw: Json) -> list[tuple[str, Json]]:
    """Return (name, object) of the Reservations of a case: a mapping by name, or a list of objects."""
    if isinstance(raw, Mapping):
        return list(cast("Mapping[str, Json]", raw).items())
    others: list[Json] = raw or []
    return [(each.get("metadata", each)["name"], each) for each in others]


def _status(raw: Json) -> ReservationStatus:
    status: Json = raw.get("status", raw)
    owners: Json = status.get("currentOwners") or status.get("owners") or ()
    return ReservationStatus(
        phase=status.get("phase", ""),
        node=status.get("nodeName", ""),
        owners=[
            ReservationOwner(each.get("namespace", ""), each.get("name", ""), each.get("uid", "")) for each in owners
        ],
    )


def _happen(world: _World, step: dict[str, Json]) -> None:
    """Change the objects as a step of a case says."""
    world.now = START + step["at"]
    for raw in step.get("putPods") or ():
        pod = pod_view_from_json(raw)
        world.pods[pod.key] = pod
    for key in step.get("deletePods") or ():
        world.pods.pop(key, None)
    statuses: dict[str, Json] = step.get("reservationStatus") or {}
    for name, raw in statuses.items():
        found = world.others if name in world.others else world.reservations
        found[name] = _status(raw)
    for name in step.get("deleteReservations") or ():
        world.reservations.pop(name, None)
        world.others.pop(name, None)
    world.jobs.update(step.get("jobPhase") or {})
    if step.get("confirmState"):
        world.drain.spec.confirm_state = ConfirmState(step["confirmState"])
    if step.get("deleteNode"):
        world.node, world.cordoned = False, False


@adapter("descheduler.drain_plan", exact_text=("planned", "available", "unavailable", "stop", "confirmed"))
def drain_plan(given: dict[str, Json]) -> dict[str, Json]:
    """The nodes that a group plans, where the outcome of each plan is given (descheduler spec, 11.4)."""
    group = object_from_json(given["group"], DrainNodeGroup)
    cluster = ClusterView(
        now=START,
        nodes=tuple(node_view_from_json(raw) for raw in given["nodes"]),
        pods=tuple(pod_view_from_json(raw) for raw in given["pods"]),
    )
    pods = {pod.name: pod for pod in cluster.pods}
    planned, plan = list[str](), GroupPlan()
    reservations: list[ReservationStatus] = []
    try:
        while not isinstance(
            found := next_node(GroupView(group=group, cluster=cluster, reservations=reservations), plan), StopReason
        ):
            planned.append(found)
            outcome: Json = given.get("outcomes", {}).get(found, {})
            if outcome.get("unavailable"):
                plan = GroupPlan(available=plan.available, unavailable=(*plan.unavailable, found))
                continue
            plan = GroupPlan(available=(*plan.available, found), unavailable=plan.unavailable)
            targets: dict[str, str] = outcome.get("targets") or {}
            for pod, target in targets.items():
                reservations.append(ReservationStatus(phase=AVAILABLE, node=target, allocatable=pods[pod].requests))
    except InvalidInput:
        return {"invalid_args": True}
    return {
        "planned": planned,
        "available": list(plan.available),
        "unavailable": list(plan.unavailable),
        "stop": found,
        "confirmed": list(confirmed(group, plan)),
    }
