"""`koord replay --rerun-scheduler`: decide placements again with another configuration of the scheduler."""

from collections.abc import Iterator
from pathlib import Path

from koord_scheduler.domain.config.effective import EffectiveConfiguration
from koord_scheduler.domain.replay.recompute import NotRecomputable, Recomputed
from koord_scheduler.domain.replay.what_if import Fate

from koordctl.access.log import LogTrouble, open_log, wait_for
from koordctl.access.times import resolve_window
from koordctl.render.output import Format, console, fail, progress, show_document, show_start, show_table
from koordctl.replay.scheduler_rerun import Comparison, compare, recomputed
from koordctl.scheduler import Compared, compared_with_force, scheduler_configuration

_MOST_NAMED = 20
_FIGURES = (
    ("nodes in use", "nodes_in_use"),
    ("pods on nodes", "pods"),
    ("pods pending", "pending"),
    ("cpu requested, % of all nodes", "cpu_requested_percent"),
    ("cpu requested, % of nodes in use", "cpu_in_use_percent"),
    ("memory requested, % of all nodes", "memory_requested_percent"),
    ("memory requested, % of nodes in use", "memory_in_use_percent"),
    ("cpu requested, % of the fullest node", "fullest_cpu_percent"),
)


def rerun(config: Path | None, begin: str | None, to: str | None, output: Format) -> None:
    """Decide the placements of a window of the log again with another configuration, and print what differs.

    If the configuration or the window is not valid, the command ends with an error.

    `begin`, `to`: a position or RFC 3339 time; None: the whole log. `config` None: the default one.
    """
    configuration = scheduler_configuration(config)
    tried = compared_with_force(config, configuration)
    if output is Format.TABLE:
        _show_configuration(tried)
    comparison = wait_for(_compare(configuration, begin, to))
    if output is Format.TABLE:
        _show(comparison)
    else:
        show_document({"configuration": tried._asdict(), **comparison.document()}, output)


def _show_configuration(tried: Compared) -> None:
    """Print how the tried configuration differs from the one in force.

    The user sees early if, for example, the file lacks a plugin.
    """
    same = "" if tried.differences else ": no difference"
    console.print(f"{tried.name} compared with {tried.other}{same}")
    for difference in tried.differences:
        console.print(f"  {difference}", soft_wrap=True)


def repeat(config: Path | None, seq: int) -> None:
    """Decide the recorded placement at position `seq` again. Exit status 1 if the result is not equal."""
    answer = wait_for(_repeat_decision(scheduler_configuration(config), seq))
    if isinstance(answer, NotRecomputable):
        fail(f"the placement at {seq} cannot be decided again: {answer.reason}")
    placed = answer.placed
    if not answer.agrees:
        again = answer.node or "no node"
        if answer.allocation != placed.allocation:
            again += ", with another allocation"
        fail(f"{placed.namespace}/{placed.name} went to {placed.node}; decided again: {again}")
    console.print(
        f"{placed.namespace}/{placed.name} to {placed.node}: the same node for the same reasons,"
        f" {len(placed.explanation.top)} best scores and {placed.explanation.nodes_considered:,} nodes compared",
        style="green",
    )


async def _repeat_decision(configuration: EffectiveConfiguration, seq: int) -> Recomputed | NotRecomputable:
    async with open_log() as log:
        try:
            return await recomputed(log.bus.events, log.bus.observations, configuration, seq)
        except LogTrouble as error:
            fail(str(error))


async def _compare(configuration: EffectiveConfiguration, begin: str | None, to: str | None) -> Comparison:
    async with open_log() as log:
        start, end = await resolve_window(log, begin, to)
        bus = log.bus
        try:
            with progress("re-run", 2 * end) as see:
                return await compare(
                    bus.events, bus.observations, bus.explanations, bus.snapshots, configuration, start, end, see
                )
        except LogTrouble as error:
            fail(str(error))


def _show(found: Comparison) -> None:
    console.print(
        f"positions {found.begin:,} to {found.end:,}: {found.recorded:,} placements recorded,"
        f" {found.decided:,} in the re-run, {found.reports:,} load reports still retained"
    )
    show_start(found.started)
    for sentence in found.warnings:
        console.print(f"warning: {sentence}")
    show_table(
        ["", "recorded", "re-run"],
        [[title, getattr(found.before, name), getattr(found.after, name)] for title, name in _FIGURES],
    )
    show_table(
        ["what differs", "pods"],
        [
            ["on another node", len(found.elsewhere)],
            ["pending instead of placed", len(found.not_placed)],
            ["placed instead of pending", len(found.newly_placed)],
            ["preempted in the re-run only", len(found.newly_preempted)],
            ["preempted in the recording only", len(found.spared)],
        ],
    )
    differing = [*found.not_placed, *found.newly_placed, *found.elsewhere]
    if differing:
        show_table(["pod", "recorded", "re-run"], _named(differing))
    if len(differing) > _MOST_NAMED:
        console.print(f"and {len(differing) - _MOST_NAMED:,} more: -o json")


def _named(fates: list[Fate]) -> Iterator[list[str]]:
    for fate in fates[:_MOST_NAMED]:
        yield [f"{fate.namespace}/{fate.name}", fate.recorded or "-", fate.rerun or "-"]
