"""Steps of the descheduler: drains, migrations and rounds."""

from koordcore.events.descheduling import (
    ChangedField,
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    DetectorGroup,
    DetectorState,
    DryRunMovesChanged,
    EvictionRefused,
    PodCost,
    ReadReports,
    RefusalsChanged,
    RoundCarriedOut,
    RoundDecided,
    RoundMove,
    RoundMovesAdded,
)
from koordcore.events.drain import (
    DrainAborted,
    DrainCompleted,
    DrainConfirmed,
    DrainedPod,
    DrainForgotten,
    DrainGroupChanged,
    DrainGroupForgotten,
    DrainGroupNodeJudged,
    DrainGroupNodePlanned,
    DrainGroupStarted,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.envelope import Event
from koordcore.events.migration import (
    MigratedPod,
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationCondition,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
    MigrationProgress,
)
from support.descheduler.history import write_operation, write_plan
from support.histories.actions import Action
from support.histories.recording import Recorder


def _drain(log: Recorder, number: int) -> None:
    """Write every kind of fact of a drain and of its group."""
    at = "2026-01-01T00:00:00.000000Z"
    pod = DrainedPod(uid=f"u-{number}", namespace="d", name="p", phase="Ready", since=at, phase_since=at)
    of_node: tuple[Event, ...] = (
        DrainWaiting(object_uid="o", node="n", message="another drain runs"),
        DrainStarted(object_uid="o", node="n", pods=[pod]),
        DrainPodsChanged(pods=[pod], conditions=["OnceAvailable"]),
        DrainConfirmed(),
        DrainCompleted(conditions=["OnceAvailable"]),
        DrainAborted(reason="the node does not exist"),
        DrainForgotten(),
    )
    of_group: tuple[Event, ...] = (
        DrainGroupStarted(object_uid="o", nodes=["n"]),
        DrainGroupNodePlanned(node="n"),
        DrainGroupNodeJudged(node="n", available=bool(number % 2), reason="" if number % 2 else "no place"),
        DrainGroupChanged(object_uid="o", phase="Running", confirmed=["n"], running=1),
        DrainGroupForgotten(),
    )
    for event in of_node:
        log.write("drain", f"d-{number}", event)
    for event in of_group:
        log.write("draingroup", f"g-{number}", event)


def _migration(log: Recorder, number: int) -> None:
    """Write every kind of fact of a migration; the end is missing for some numbers."""
    pod = MigratedPod(namespace="d", name="p", uid=f"u-{number}")
    evicting = MigrationCondition(type="Eviction", reason="Evicting")
    events: tuple[Event, ...] = (
        MigrationHeld(job="j", pod=pod, limits=["max_migrating_per_node"]),
        MigrationArbitrated(job="j", pod=pod, node="n", controller="c", trigger="LowNodeLoad", reason="hot"),
        MigrationAdvanced(
            pod=pod,
            progress=MigrationProgress(phase="Running", conditions=[evicting]),
            soft_eviction=ChangedField(after="{}"),
        ),
        MigrationEnded(job="j", pod=pod, progress=MigrationProgress(phase="Succeeded", status="Complete")),
        MigrationForgotten(),
    )
    for event in events[: len(events) - (number - 1) % len(events)]:
        log.write("migration", f"m-{number}", event)
    write_plan(log.write, number)
    write_operation(log.write, number)


def _round(log: Recorder, number: int, variation: int) -> None:
    """Write every kind of fact of a round of the descheduler; the end is missing for some numbers."""
    at = "2026-01-01T00:00:00.000000Z"
    move = RoundMove(
        namespace="d", name="p", uid=f"u-{number}", node="n", profile="p", plugin="LowNodeLoad", reason="hot"
    )
    state = DetectorState(abnormal=variation, last_abnormal=at) if variation else None
    events: tuple[Event, ...] = (
        RoundDecided(
            started_at=at,
            moves=[move],
            detectors=[DetectorGroup(usage="node", nodes=[f"n-{number}"], state=state)],
            reports=ReadReports(nodes=1, last=number, digest="0" * 16, positions={"n": number}),
        ),
        RoundMovesAdded(moves=[move]),
        RoundCarriedOut(refused=["u"]),
    )
    for event in events[: len(events) - (number - 1) % len(events)]:
        log.write("descheduling", "rounds", event)
    log.write("descheduling", "dry-runs", DryRunMovesChanged(chosen=[move], dropped=[f"u-{number - 1}/p/LowNodeLoad"]))
    refused = EvictionRefused(move=move, codes=["daemonset", "pvc"][variation % 2 :])
    ended = [f"u-{number - 1}/p/LowNodeLoad"]
    log.write("descheduling", "refusals", RefusalsChanged(refused=[refused], ended=ended, dropped=variation))
    costs = [
        PodCost(namespace="d", name=f"p-{each}", uid=f"u-{each}", node="n", before="", after=str(each))
        for each in range(variation + 1)
    ]
    decided = DeletionCostsDecided(started_at=at, profile="p", plugin="ScaleDownBinPack", costs=costs)
    log.write("descheduling", "costs", decided)
    if number % 2:
        log.write("descheduling", "costs", DeletionCostsCarriedOut(refused={"u-0": "it is gone"}))


def step_descheduling(log: Recorder, action: Action) -> None:
    """Write the facts of a step of the descheduler."""
    what, number, variation = action
    match what:
        case "drain":
            _drain(log, number)
        case "migration":
            _migration(log, number)
        case "round":
            _round(log, number, variation)
        case _:
            pass  # a step of another module, or not possible in the present state: no event
