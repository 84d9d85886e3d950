"""`koord replay`: rebuild the state from the log alone and compare it with the projector's rows."""

from pathlib import Path
from typing import Annotated, Final

import typer
from koord_manager.domain.admission.config_maps import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from koord_manager.domain.controller_names import CONTROLLERS, PLUGINS

from koordctl.access.folding import Folded, archived_cluster, fold_to
from koordctl.access.log import LogTrouble, OpenLog, open_log, wait_for
from koordctl.access.times import resolve_position
from koordctl.descheduling.audit import record_run
from koordctl.objects.reservations import HELD_COLUMNS, held_rows, reservations_in
from koordctl.render.output import Format, WholeOption, console, fail, progress, show_table, start_text
from koordctl.render.units import by_count, duration_text
from koordctl.replay.verify import FoldPosition, projector_position

_CONTROLLERS: Final = ",".join(CONTROLLERS)
_PLUGINS: Final = ",".join(PLUGINS)
PROJECTOR_SECONDS: Final = 30.0
"""The projector reads all its rows for one answer."""


def replay(
    to: Annotated[
        str | None, typer.Option("--to", help="Position of the log, or RFC 3339 time; default: the newest event.")
    ] = None,
    speed_report: Annotated[bool, typer.Option("--speed-report", help="Print only the speed of the fold.")] = False,
    rerun_scheduler: Annotated[
        bool,
        typer.Option("--rerun-scheduler", help="Decide again what lies between --from and --to. Nothing is changed."),
    ] = False,
    rerun_manager: Annotated[
        bool,
        typer.Option(
            "--rerun-manager",
            help="Decide again about nodes, recommendations and admission. Nothing is changed.",
        ),
    ] = False,
    rerun_descheduler: Annotated[
        bool,
        typer.Option("--rerun-descheduler", help="Play rounds of the descheduler. Nothing is changed."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="With --rerun-scheduler, --recompute: the KubeSchedulerConfiguration; default: the default profile."
            " With --rerun-manager: the ConfigMap slo-controller-config; default: the recorded one."
            " With --rerun-descheduler: the DeschedulerConfiguration; default: that of `koord deschedule`.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(
            "--profiles",
            help="With --rerun-manager: ClusterColocationProfiles to admit with; default: the recorded ones.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="With --rerun-...: position or time; default: the beginning.")
    ] = None,
    recommender_settings: Annotated[
        str | None,
        typer.Option(
            "--recommender-settings",
            help="With --rerun-manager: settings of the recommender to try, NAME=NUMBER,...: targetCPUPercentile=0.95;"
            " default: the recorded ones.",
        ),
    ] = None,
    controllers: Annotated[
        str,
        typer.Option("--controllers", help="With --rerun-manager: controllers that ran, as in the manager's flag."),
    ] = _CONTROLLERS,
    noderesource_plugins: Annotated[
        str,
        typer.Option(
            "--noderesource-plugins", help="With --rerun-manager: node resource plugins, as in the manager's flag."
        ),
    ] = _PLUGINS,
    feature_gates: Annotated[
        str,
        typer.Option("--feature-gates", help="With --rerun-manager: feature gates, as in the manager's flag."),
    ] = "",
    config_namespace: Annotated[
        str,
        typer.Option(
            "--config-namespace", help="With --rerun-manager: namespace of the ConfigMap, as in the manager's flag."
        ),
    ] = SLO_CONFIG_NAMESPACE,
    slo_config_name: Annotated[
        str,
        typer.Option(
            "--slo-config-name", help="With --rerun-manager: name of the ConfigMap, as in the manager's flag."
        ),
    ] = SLO_CONFIG_NAME,
    recompute: Annotated[
        int | None,
        typer.Option("--recompute", min=1, help="Position of a PodPlaced: decide it again from the log alone."),
    ] = None,
    whole: WholeOption = False,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="With --rerun-...: table, json or yaml.")
    ] = Format.TABLE,
) -> None:
    """Rebuild the state from the log alone, up to a position or time, and compare it with the projector's rows.

    With KOORD_ARCHIVE, the fold begins at the nearest snapshot of the archive, and the output names its position.

    With --rerun-scheduler: decide placements again with another configuration of the scheduler. With --rerun-manager:
    decide again about nodes (batch and mid resources, NodeSLO), recommendations and admission, with another
    slo-controller-config, other settings of the recommender, other colocation profiles or other feature gates. With
    --rerun-descheduler: play rounds of a configuration of the descheduler over the recorded cluster.

    Examples:

      koord replay

      koord replay --to 1200

      koord replay --to 2026-11-21T08:30:00Z

      koord replay --rerun-scheduler --config my.yaml --from 1200 --to 5000

      koord replay --rerun-manager --config my.yaml

      koord replay --rerun-manager --recommender-settings targetCPUPercentile=0.95,safetyMarginFraction=0.3

      koord replay --rerun-manager --profiles my.yaml

      koord replay --rerun-manager --controllers '*,-nodeslo'

      koord replay --rerun-manager --noderesource-plugins '*,-CPUNormalization'

      koord replay --rerun-descheduler --config my.yaml --from 1200

      koord replay --recompute 5017
    """
    if rerun_scheduler + rerun_manager + rerun_descheduler > 1:
        fail("--rerun-scheduler, --rerun-manager and --rerun-descheduler exclude each other", status=2)
    given = (f"from {begin or 'the beginning'}", f"to {to or 'the end'}", *([str(config)] if config else []))
    if rerun_manager:
        from koordctl.replay.manager import ManagerFlags
        from koordctl.replay.manager import rerun_manager as decide_again

        flags = ManagerFlags(
            controllers=controllers,
            plugins=noderesource_plugins,
            gates=feature_gates,
            config_namespace=config_namespace,
            slo_config_name=slo_config_name,
        )
        decide_again(config, profiles, recommender_settings, begin, to, output, flags)
        wait_for(record_run("replay --rerun-manager", given))
        return
    manager_flags = (controllers, noderesource_plugins, feature_gates, config_namespace, slo_config_name)
    as_by_default = manager_flags == (_CONTROLLERS, _PLUGINS, "", SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME)
    if profiles is not None or recommender_settings is not None or not as_by_default:
        fail(
            "--profiles, --recommender-settings, --controllers, --noderesource-plugins, --feature-gates,"
            " --config-namespace and --slo-config-name belong to --rerun-manager",
            status=2,
        )
    if rerun_descheduler:
        from koordctl.replay.descheduler import rerun_descheduler as play_again

        play_again(config, begin, to, output)
        wait_for(record_run("replay --rerun-descheduler", given))
        return
    if rerun_scheduler:
        # Imported here: the scheduler's configuration takes longer to load than most commands take to run.
        from koordctl.replay.scheduler import rerun

        rerun(config, begin, to, output)
        wait_for(record_run("replay --rerun-scheduler", given))
        return
    if recompute is not None:
        from koordctl.replay.scheduler import repeat

        repeat(config, recompute)
        return
    if config is not None or begin is not None or output is not Format.TABLE:
        fail("--config, --from and -o belong to --rerun-scheduler, --rerun-manager and --rerun-descheduler", status=2)
    wait_for(_replay(to, speed_report=speed_report, whole=whole))


async def _replay(to: str | None, *, speed_report: bool, whole: bool) -> None:
    async with open_log() as log:
        upto = await resolve_position(log, to, "--to")
        folded = await _fold_with_progress(log, upto, whole=whole)
        rows = None if speed_report else await _projector(log)
    started = f" {start_text(folded.begin)}" if folded.begin else ""
    console.print(
        f"folded {folded.events:,} events{started} to position {upto:,} in {duration_text(folded.seconds)}"
        f" ({folded.events_per_second:,.0f} events/s)"
    )
    if speed_report:
        return
    kinds: dict[str, int] = {}
    for ref, _ in folded.state:
        kinds[ref.kind] = kinds.get(ref.kind, 0) + 1
    show_table(["aggregate", "count"], sorted(kinds.items()), empty="no aggregates")
    event = f"event after {folded.begin:,}" if folded.begin else "event"
    show_table([event, "count"], by_count(folded.by_type), empty="no events")
    held = held_rows(reservations_in(folded.state))
    if held:
        show_table(HELD_COLUMNS, held)
    console.print(f"hash {folded.hash}")
    if rows is None:
        console.print("the projector does not answer: nothing to compare")
    elif rows.position != upto:
        console.print(f"the projector is at {rows.position:,}: `koord verify` compares at its position")
    elif rows.hash == folded.hash:
        console.print("equal to the projector's rows", style="green")
    else:
        fail(f"the projector's rows at position {upto} differ: {rows.hash}")


async def _fold_with_progress(log: OpenLog, upto: int, *, whole: bool) -> Folded:
    state = None if whole else await archived_cluster(log.bus, upto)
    with progress("replay", upto, counted=True) as see:
        return await fold_to(log.bus.events, upto, state=state, progress=see)


async def _projector(log: OpenLog) -> FoldPosition | None:
    """None if the projector does not answer."""
    try:
        return await projector_position(log.bus, PROJECTOR_SECONDS, waits=False)
    except LogTrouble:
        return None
