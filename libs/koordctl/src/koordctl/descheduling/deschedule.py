"""`koord deschedule`: show which pods the descheduler would move, and what that is worth, or run a round now."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from koord_descheduler.domain.config.effective import configuration_hash
from koord_descheduler.domain.config.profiles import proving_profiles
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.dry_run import DryRun, Measures, Spread, dry_run
from koord_descheduler.domain.rounds.player import RoundPlayer, start_of_round
from koord_descheduler.domain.rounds.reporting import Refused
from koordcore.requests.catalogue import DESCHEDULER_ABORT_MIGRATION, DESCHEDULER_NOTE_DRY_RUN, DESCHEDULER_RUN_ROUND
from koordcore.requests.descheduling import AbortMigration, DryRunNote, RunRound
from koordcore.requests.endpoint import WorkQueue
from koordcore.service.process_user import user_at_host
from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import manager
from koordctl.access.clock import run_clock
from koordctl.access.log import LogTrouble, open_log, wait_for
from koordctl.access.requests import ask_capacity_on
from koordctl.descheduling.configuration import descheduler_configuration
from koordctl.descheduling.live_cluster import live_builder
from koordctl.render.output import Format, console, fail, show_document, show_table, working, write_line

Request = TypeVar("Request", RunRound, AbortMigration, DryRunNote)

_INTERVAL = 10.0
"""Seconds between two rounds if the configuration asks for a single round."""


def deschedule(
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what rounds would do. Change nothing.")] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Let the descheduler run a round now, besides its interval.")
    ] = False,
    abort: Annotated[
        str | None, typer.Option("--abort", help="Abort the migration of this PodMigrationJob, and free its place.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="DeschedulerConfiguration. Default: LowNodeLoad, cpu 45/75, memory 55/80 percent."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="Number of rounds to play.")] = 10,
    output: Annotated[Format, typer.Option("--output", "-o", help="table, yaml or json.")] = Format.TABLE,
    seconds: Annotated[
        float, typer.Option("--timeout", help="Give up if the scheduler does not answer in time.")
    ] = 60.0,
) -> None:
    """Show which pods the descheduler would move and where they would land, or let it run a round now.

    With --dry-run, nothing is changed. The rounds are played on the current state. The scheduler places all moved pods
    with its real engine on a copy of its state, and capacity counts. Pods without a place would not be evicted.
    The rounds begin with what the next round of the descheduler begins with: its anomaly detectors, its jobs in flight,
    and the evictions that limits count. LowNodeLoad acts on nodes that are hot in several rounds in a row, so play more
    rounds than consecutiveAbnormalities. The audit records who asked (koord audit).

    Examples:

      koord deschedule --dry-run

      koord deschedule --dry-run --config descheduler.yaml --rounds 20 -o json

      koord deschedule --now

      koord deschedule --abort 8c1f
    """
    if sum((now, is_dry_run, abort is not None)) != 1:
        fail("give one of --dry-run, --now and --abort", status=2)
    if now:
        number = wait_for(_submitted(DESCHEDULER_RUN_ROUND, RunRound(asked_by=user_at_host())))
        write_line(f"a round is asked for (request {number})")
        return
    if abort is not None:
        manager.get(f"/v1/objects/PodMigrationJob/{abort}")
        number = wait_for(_submitted(DESCHEDULER_ABORT_MIGRATION, AbortMigration(name=abort)))
        write_line(f"the end of migration {abort} is asked for (request {number})")
        return
    configuration = descheduler_configuration(config)
    interval = configuration.descheduling_interval or _INTERVAL

    async def run() -> tuple[DryRun, Refused]:
        async with open_log() as log:
            start = start_of_round(await live_builder(log), run_clock().now().timestamp(), configuration, BUILT_IN)
            player = RoundPlayer(configuration, BUILT_IN, start.shared, start.jobs)
            proving = proving_profiles(configuration)
            asking = dry_run(player, start.cluster, rounds=rounds, interval=interval, proving=proving)
            try:
                question = next(asking)
                while True:
                    question = asking.send(await ask_capacity_on(log, question, seconds=seconds))
            except StopIteration as end:
                return end.value, player.refused

    try:
        with working("playing the rounds"):
            found, refused = wait_for(run())
    except InvalidInput as error:
        fail(error.sentence())
    if output is Format.TABLE:
        _show(found, refused)
    else:
        show_document(_document(found, refused), output)
    note = DryRunNote(
        asked_by=user_at_host(),
        configuration_hash=configuration_hash(configuration),
        rounds=found.rounds,
        moves=len(found.moves),
        without_place=len(found.homeless),
        without_gain=len(found.useless),
    )
    wait_for(_submitted(DESCHEDULER_NOTE_DRY_RUN, note))


async def _submitted(queue: WorkQueue[Request], request: Request) -> int:
    """Add a request to a work queue of the descheduler, and return its number. The leader carries it out."""
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.work.requests import submit

    async with open_log() as log:
        try:
            return await submit(log.connection, log.names, queue, request, seconds=10.0)
        except NoAnswer as error:
            raise LogTrouble(str(error)) from error


def _show(found: DryRun, refused: Refused) -> None:
    rows = [(move.pod.key, move.pod.node, move.target, move.plugin, move.reason) for move in found.moves]
    show_table(("pod", "from", "to", "plugin", "reason"), rows, empty="no pod would move")
    for pod in found.homeless:
        console.print(f"{pod.key} on {pod.node} would find no place, and is not evicted")
    for pod in found.useless:
        console.print(f"{pod.key} on {pod.node} stays: no better cluster after its move")
    measures = [
        ("measured", resource, *_cells(found.before.used.get(resource), found.after.used.get(resource)))
        for resource in found.before.used
    ]
    measures += [
        ("requested", resource, *_cells(found.before.requested.get(resource), found.after.requested.get(resource)))
        for resource in found.before.requested
    ]
    show_table(("share of nodes", "resource", "mean", "deviation", "highest"), measures)
    console.print(
        f"{found.rounds} rounds: {len(found.moves)} moves, {len(found.homeless)} without a place, {len(found.useless)} "
        f"without gain; fragmentation {found.before.fragmentation:.1f}% -> {found.after.fragmentation:.1f}%; "
        f"{found.questions} questions to the scheduler"
    )
    if refused.at_limit:
        console.print(f"workloads at their limit: {', '.join(sorted(refused.at_limit))}")
    if refused.by_code:
        counts = Counter({code: len(pods) for code, pods in refused.by_code.items()})
        texts = [f"{code} {count}" for code, count in counts.most_common()]
        console.print(f"pods that must not be evicted now: {', '.join(texts)}")
    for fault in found.faults:
        console.print(f"plugin {fault.plugin} of profile {fault.profile} failed: {fault.text}")


def _cells(before: Spread | None, after: Spread | None) -> tuple[str, str, str]:
    if before is None or after is None:
        return ("-", "-", "-")
    return (
        f"{before.mean:.1f}% -> {after.mean:.1f}%",
        f"{before.deviation:.1f} -> {after.deviation:.1f}",
        f"{before.highest:.1f}% -> {after.highest:.1f}%",
    )


def _document(found: DryRun, refused: Refused) -> dict[str, Any]:
    return {
        "rounds": found.rounds,
        "moves": [
            {
                "pod": move.pod.key,
                "uid": move.pod.uid,
                "from": move.pod.node,
                "to": move.target,
                "plugin": move.plugin,
                "reason": move.reason,
            }
            for move in found.moves
        ],
        "withoutPlace": [{"pod": pod.key, "node": pod.node} for pod in found.homeless],
        "withoutGain": [{"pod": pod.key, "node": pod.node} for pod in found.useless],
        "before": _measures(found.before),
        "after": _measures(found.after),
        "workloadsAtLimit": sorted(refused.at_limit),
        "refused": {code: len(pods) for code, pods in sorted(refused.by_code.items())},
        "faults": [{"profile": each.profile, "plugin": each.plugin, "text": each.text} for each in found.faults],
        "questions": found.questions,
    }


def _measures(measures: Measures) -> dict[str, Any]:
    def spreads(found: Any) -> dict[str, Any]:
        return {
            name: {"mean": spread.mean, "deviation": spread.deviation, "highest": spread.highest}
            for name, spread in found.items()
        }

    return {
        "measured": spreads(measures.used),
        "requested": spreads(measures.requested),
        "fragmentation": measures.fragmentation,
    }
