"""`koord replay --rerun-descheduler`: play rounds of a configuration over a recorded log."""

from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koordcore.bus.factory import Bus
from koordcore.bus.folds.skips import recorded_skips
from koordcore.events.registry import UnreadableEvent
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koordctl.access.clients import find_service
from koordctl.access.folding import BATCH, everything_kept, saved_cluster
from koordctl.access.log import LogTrouble, open_log, wait_for
from koordctl.access.times import resolve_window
from koordctl.descheduling.configuration import descheduler_configuration
from koordctl.render.output import Format, console, progress, show_document, show_start, show_table
from koordctl.replay.descheduler_rerun import DESCHEDULER_FOLD, DescheduleComparison, DeschedulerRerun
from koordctl.replay.scheduler_rerun import FOLD, saved_state, state_of
from koordctl.replay.usage_reports import ReportArchive
from koordctl.scheduler import scheduler_configuration

_MOST_NAMED = 20
_INTERVAL = 10.0
"""Seconds between two rounds, if the configuration asks for a single round."""
_KNOWN: Final = timedelta(hours=2)
"""The first round knows the reports of this time before the window: all that a running descheduler could have read."""


def rerun_descheduler(config: Path | None, begin: str | None, to: str | None, output: Format) -> None:
    """Play rounds over a window of the log, and print what they would have changed.

    `begin`, `to`: a position or RFC 3339 time; None: the whole log. `config` None: the commands' default.
    """
    configuration = descheduler_configuration(config)
    archive = ReportArchive(find_service("projector"))
    found = wait_for(_rerun(configuration, begin, to, archive))
    if output is Format.TABLE:
        _show(found, archive.trouble)
    else:
        show_document(_document(found, archive.trouble), output)


async def _rerun(
    configuration: DeschedulerConfiguration, begin: str | None, to: str | None, archive: ReportArchive
) -> DescheduleComparison:
    async with open_log() as log:
        start, end = await resolve_window(log, begin, to)
        return await played(log.bus, configuration, start, end, archive)


async def played(
    bus: Bus, configuration: DeschedulerConfiguration, begin: int, end: int, archive: ReportArchive
) -> DescheduleComparison:
    """Play rounds over a window of the log, from the snapshots of the scheduler and the manager before it.

    Args:
        archive: Usage reports that their stream does not have any more.

    Raises:
        LogTrouble: An event cannot be decoded, a plugin cannot be made, or the archive stopped answering.
    """
    placing = scheduler_configuration(None)
    saved = await saved_state(bus.snapshots, placing, begin)
    state, cluster = state_of(placing, saved), None if saved is None else await saved_cluster(bus.snapshots, begin)
    started = 0 if cluster is None else min(cluster.position, state.log.position)
    rerun = DeschedulerRerun(
        configuration,
        state,
        interval=configuration.descheduling_interval or _INTERVAL,
        begin=begin,
        cluster=cluster,
        skipped=await recorded_skips(bus.events, DESCHEDULER_FOLD, halted_at=started + 1),
        skipped_by_scheduler=await recorded_skips(bus.events, FOLD, halted_at=started + 1),
    )
    history = bus.events.history(started, end, batch=BATCH)
    events = [stored async for batch in history for stored in batch]
    first = next((each.occurred_at for each in events if each.seq > begin), events[-1].occurred_at if events else "")
    since = rfc3339(datetime.fromisoformat(first) - _KNOWN) if first else ""
    reports = archive.merged(await everything_kept(bus.observations), since)
    try:
        with progress("re-run", end) as see:
            return rerun.run(events, reports, see)
    except (UnreadableEvent, InvalidInput) as error:
        raise LogTrouble(str(error)) from error


def _show(found: DescheduleComparison, trouble: str) -> None:
    recorded, rerun = found.recorded, found.rerun
    archived = f"none from the archive: {trouble}" if trouble else f"{found.archived:,} from the projector's archive"
    console.print(
        f"{found.rounds:,} rounds over {found.reports:,} usage reports"
        f"{f' since {found.first_report}' if found.first_report else ''}:"
        f" {found.reports - found.archived:,} still in their stream, {archived}",
    )
    show_start(found.started)
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
        f"{found.without_gain:,} without gain"
    )
    if found.moves:
        rows = [[move.pod.key, move.pod.node, move.target, move.reason] for _, move in found.moves[:_MOST_NAMED]]
        show_table(["pod", "from", "to", "reason"], rows)
    if len(found.moves) > _MOST_NAMED:
        console.print(f"and {len(found.moves) - _MOST_NAMED:,} more: -o json")
    for fault in dict.fromkeys(found.faults):
        console.print(f"plugin failed: {fault}")


def _factor(slowdown: float | None) -> str:
    return "-" if slowdown is None else f"x{slowdown:.3f}"


def _document(found: DescheduleComparison, trouble: str) -> dict[str, Any]:
    return {
        "startedAt": found.started,
        "rounds": found.rounds,
        "reports": found.reports,
        "archivedReports": found.archived,
        "firstReport": found.first_report,
        "archiveTrouble": trouble,
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
