"""`koord replay --rerun-descheduler`: play rounds of a configuration over a recorded log."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koordcore.bus.factory import Bus
from koordcore.events.registry import UnreadableEvent
from koordcore.values.invalid import InvalidInput
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from koordctl.access.folding import BATCH, everything_kept, saved_cluster, skipped_positions
from koordctl.access.log import LogTrouble, open_log, wait_for
from koordctl.commands.replay.window import resolve_position
from koordctl.documents.descheduler_config import descheduler_configuration
from koordctl.documents.scheduler_config import scheduler_configuration
from koordctl.render.output import Format, console, errors, fail, show_document, show_table
from koordctl.what_if.descheduler import DescheduleComparison, DeschedulerRerun
from koordctl.what_if.scheduler import saved_state, state_of

_MOST_NAMED = 20
_INTERVAL = 10.0
"""Seconds between two rounds, if the configuration asks for a single round."""


def rerun_descheduler(config: Path | None, begin: str | None, to: str | None, output: Format) -> None:
    """Play rounds over a window of the log, and print what they would have changed.

    Args:
        config: File with a DeschedulerConfiguration; None for the default one of the commands.
        begin: Value of --from: a position or RFC 3339 time; None for the beginning of the log.
        to: Value of --to: a position or RFC 3339 time; None for the newest event.
        output: Format of the output.
    """
    configuration = descheduler_configuration(config)
    found = wait_for(_rerun(configuration, begin, to))
    if output is Format.TABLE:
        _show(found)
    else:
        show_document(_document(found), output)


async def _rerun(configuration: DeschedulerConfiguration, begin: str | None, to: str | None) -> DescheduleComparison:
    async with open_log() as log:
        start = 0 if begin is None else await resolve_position(log, begin, "--from")
        end = await resolve_position(log, to, "--to")
        if start > end:
            fail(f"--from {start} is after --to {end}", status=2)
        return await played(log.bus, configuration, start, end)


async def played(bus: Bus, configuration: DeschedulerConfiguration, begin: int, end: int) -> DescheduleComparison:
    """Play rounds over a window of the log, from the snapshots of the scheduler and the manager before it.

    Args:
        bus: Connection to the log.
        configuration: The configuration to try.
        begin: The window starts behind this position.
        end: Last position of the window.

    Raises:
        LogTrouble: An event cannot be decoded, or a plugin cannot be made.
    """
    placing = scheduler_configuration(None)
    saved = await saved_state(bus.snapshots, placing, begin)
    rerun = DeschedulerRerun(
        configuration,
        state_of(placing, saved),
        interval=configuration.descheduling_interval or _INTERVAL,
        begin=begin,
        cluster=None if saved is None else await saved_cluster(bus.snapshots, begin),
        skipped=await skipped_positions(bus.events),
    )
    history = bus.events.history(rerun.starts_behind, end, batch=BATCH)
    events = [stored async for batch in history for stored in batch]
    reports = await everything_kept(bus.observations)
    columns = (TextColumn("re-run"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("rerun", total=max(end, 1))
        try:
            return rerun.run(events, reports, lambda position: bar.update(task, completed=position))
        except (UnreadableEvent, InvalidInput) as error:
            raise LogTrouble(str(error)) from error


def _show(found: DescheduleComparison) -> None:
    recorded, rerun = found.recorded, found.rerun
    console.print(f"{found.rounds:,} rounds over {found.reports:,} usage reports still retained", highlight=False)
    show_table(
        ["", "recorded", "re-run"],
        [
            ["evictions by the descheduler", f"{recorded.evictions:,}", f"{rerun.evictions:,}"],
            ["evictions by agents", f"{recorded.agent_evictions:,}", f"{rerun.agent_evictions:,}"],
            ["hot-node minutes", f"{recorded.hot_minutes:,.1f}", f"{rerun.hot_minutes:,.1f}"],
            ["slowdown of latency-sensitive requests", _factor(recorded.slowdown), _factor(rerun.slowdown)],
        ],
    )
    avoided = recorded.agent_evictions - rerun.agent_evictions
    console.print(
        f"{avoided:,} evictions avoided; {found.without_place:,} choices without a place, "
        f"{found.without_gain:,} without gain",
        highlight=False,
    )
    if found.moves:
        rows = [[move.pod.key, move.pod.node, move.target, move.reason] for _, move in found.moves[:_MOST_NAMED]]
        show_table(["pod", "from", "to", "reason"], rows)
    if len(found.moves) > _MOST_NAMED:
        console.print(f"and {len(found.moves) - _MOST_NAMED:,} more: -o json", highlight=False)
    for fault in dict.fromkeys(found.faults):
        console.print(f"plugin failed: {fault}", highlight=False, markup=False)


def _factor(slowdown: float | None) -> str:
    return "-" if slowdown is None else f"x{slowdown:.3f}"


def _document(found: DescheduleComparison) -> dict[str, Any]:
    return {
        "rounds": found.rounds,
        "reports": found.reports,
        "recorded": asdict(found.recorded),
        "rerun": asdict(found.rerun),
        "withoutPlace": found.without_place,
        "withoutGain": found.without_gain,
        "moves": [
            {
                "time": time,
                "pod": move.pod.key,
                "from": move.pod.node,
                "to": move.target,
                "plugin": move.plugin,
                "reason": move.reason,
            }
            for time, move in found.moves
        ],
        "faults": found.faults,
    }
