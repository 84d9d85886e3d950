"""Facts of the descheduler about plans and about itself, for histories of a small cluster."""

from collections.abc import Callable

from koordcore.events.descheduling import ChangedField, DeschedulerConfigured, DryRunAnswered
from koordcore.events.envelope import Event
from koordcore.events.migration import (
    MigratedPod,
    RepackCommitted,
    RepackEnded,
    RepackForgotten,
    RepackMove,
    RepackMoved,
    RepackPlanned,
)

Write = Callable[[str, str, Event], None]


def write_plan(write: Write, number: int) -> None:
    """Write every kind of fact of a plan; the end is missing for some numbers."""
    pod = MigratedPod(namespace="d", name="p", uid=f"u-{number}")
    events: tuple[Event, ...] = (
        RepackPlanned(
            gang="d/g", members=[pod], nodes=["n"], moves=[RepackMove(job="j", pod=pod, source="n")], gpus=number
        ),
        RepackCommitted(reservations={"j": "n"}),
        RepackMoved(),
        RepackEnded(result="done", reason="all 1 pods have moved"),
        RepackForgotten(),
    )
    for event in events[: len(events) - (number - 1) % len(events)]:
        write("repack", f"plan-{number}", event)


def write_operation(write: Write, number: int) -> None:
    """Write a changed configuration and a dry run."""
    hash_ = f"{number:016x}"
    changes = {"dryRun": ChangedField(before="false", after="true")}
    configured = DeschedulerConfigured(configuration_hash=hash_, configuration={"dryRun": True}, changes=changes)
    write("descheduler", "default", configured)
    write("descheduler", "default", DryRunAnswered(configuration_hash=hash_, moves=number))
