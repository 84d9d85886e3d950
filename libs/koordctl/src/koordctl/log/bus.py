"""`koord bus`: commands about the event log, its readers, and the work that services have set aside.

`koord bus genesis` writes a fresh log from the objects of an API server.

Source:
    event-bus spec, 9.3 (genesis)
"""

from __future__ import annotations

import asyncio
import getpass
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from koordcore.embedded.errors import NotRestartableError
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.log import EventSkipped
from koordcore.ports.eventlog import Appended
from koordcore.values.timestamps import rfc3339

from koordctl.access.clients import (
    HALTED,
    LAG,
    LAG_SECONDS,
    SERVICES,
    ask,
    find_service,
    fold_figures,
    live_directory,
    named_instances,
    nothing_runs,
    running_stack,
)
from koordctl.access.clock import run_clock
from koordctl.access.log import cluster_name, mirror_info, open_log, operator_settings, wait_for
from koordctl.log import archive, mirror
from koordctl.log.mirror import LogSize
from koordctl.render.output import Format, console, fail, show_document, show_table

if TYPE_CHECKING:
    from koordcore.bus.work.dlq import ParkedItem

POLL_SECONDS = 0.5
LOG_GONE = NotRestartableError.exit_status
MIB = 1 << 20
_HALTED_BEFORE = re.compile(r"halted before event (\d+)")


def begin(
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the API server; none: the pod's own.")] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    namespace: Annotated[str, typer.Option(help="Namespace of the configuration.")] = "koordinator-system",
    config_name: Annotated[str, typer.Option(help="Name of the slo-controller-config.")] = "slo-controller-config",
    take_node_metrics: Annotated[bool, typer.Option(help="NodeMetric status comes from a stock agent.")] = False,
) -> None:
    """Write a fresh log from the objects of an API server: first installation, or a log that was lost.

    Stop all services first. The stream must be empty. If the command is interrupted, run it again.

    Examples:

      koord bus genesis --kubeconfig ~/.kube/config
    """
    # Imported here: no other command below `koord bus` needs the gateway.
    from koord_manager.cluster_commands import GenesisRefused, Unreachable

    try:
        wait_for(_genesis(kubeconfig, context, namespace, config_name, take_node_metrics=take_node_metrics))
    except (GenesisRefused, Unreachable) as error:
        fail(str(error))


async def _genesis(
    kubeconfig: Path | None, context: str, namespace: str, config_name: str, *, take_node_metrics: bool
) -> None:
    from koord_manager.cluster_commands import begin_anew
    from koordcore.bus.setup.manifest import GENESIS

    async def progress(sentence: str) -> None:
        console.print(sentence)

    async with open_log(principal=GENESIS.name) as log:
        await begin_anew(
            log.bus.events,
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            config_name=config_name,
            take_node_metrics=take_node_metrics,
            progress=progress,
        )


app = typer.Typer(help="The log itself: streams, lag of the services, parked work, skips.", no_args_is_help=True)
dlq = typer.Typer(help="Dead letters: work that failed and was parked with its reason.", no_args_is_help=True)
app.add_typer(dlq, name="dlq")
app.command("genesis")(begin)
app.command("archive")(archive.archive)
app.command("mirror")(mirror.mirror)
app.command("promote")(mirror.promote)


@app.command()
def streams() -> None:
    """Show every stream: messages, size, first and last position, number of replicas, and whether all are current.

    A server that is not current lacks messages: it was away, or is slow. Stop no other server meanwhile. With
    KOORD_MIRROR, the mirror (`koord bus mirror`) is the last row.

    Examples:

      koord bus streams
    """
    columns = ["stream", "messages", "MiB", "of MiB", "first", "last", "subjects", "replicas", "current"]
    show_table(columns, wait_for(_streams()))


async def _streams() -> list[list[object]]:
    async with open_log() as log:
        from koordcore.bus.client.connection import NoAnswer
        from koordcore.bus.read.stream_reader import ApiError, stream_info
        from koordcore.bus.setup.streams import streams as wanted

        from koordctl.log.health import mirror_trouble, replicas_behind

        rows: list[list[object]] = []
        for spec in wanted(log.names, replicas=1):
            try:
                info = await stream_info(log.connection, spec.name)
            except (ApiError, NoAnswer) as error:  # the server that stores it is away
                rows.append([spec.name, *[None] * 7, str(error)])
                continue
            if info is None:
                rows.append([spec.name, *[None] * 7, "does not exist"])
                continue
            rows.append([spec.name, *_sizes(info), ", ".join(replicas_behind(info)) or "yes"])
        mirrored = await mirror_info()
        if isinstance(mirrored, str):
            rows.append(["mirror", *[None] * 7, mirrored])
        elif mirrored is not None:
            rows.append(["mirror", *_sizes(mirrored), mirror_trouble(mirrored) or "yes"])
        return rows


def _sizes(info: Mapping[str, Any]) -> list[object]:
    state, config = info["state"], info["config"]
    size, most = f"{state['bytes'] / MIB:.1f}", f"{config['max_bytes'] / MIB:.0f}"
    ends = [state["first_seq"], state["last_seq"], state.get("num_subjects", 0), config["num_replicas"]]
    return [state["messages"], size, most, *ends]


@app.command()
def bootstrap(
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=5,
            help="Servers that store facts and requests: 3 in production. Default: as many as now, 1 for a new log.",
        ),
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the servers.")] = 60.0,
    log_size: LogSize = None,
    new_log: Annotated[
        bool, typer.Option("--new-log", help="Begin a new, empty log if the stream of facts is gone.")
    ] = False,
) -> None:
    """Create the streams and consumers of the cluster on the servers, or change them where no data is lost.

    Services create no stream. Run this once before they start, and again after an upgrade; it is idempotent, and never
    makes a stream smaller. If a change would lose data, it changes nothing. It connects as the user `bootstrap` to
    KOORD_NATS with the key KOORD_NATS_SEED.

    If the stream of facts is gone, and other streams of the cluster have messages, it creates nothing, and the exit
    status is 3. Restore a backup then. With --new-log, a new log begins, and snapshots and desired states of the old
    one are deleted.

    Examples:

      koord bus bootstrap --replicas 3

      koord bus bootstrap --replicas 3 --log-size 20Gi
    """
    for stream, change in wait_for(_bootstrap(replicas, wait, log_size, new_log=new_log)).items():
        console.print(f"{stream}: {change}")


async def _bootstrap(replicas: int | None, wait: float, log_size: int | None, *, new_log: bool) -> dict[str, str]:
    from dataclasses import replace

    from koordcore.bus.client.connection import ConnectRefused, NoAnswer, NotConnected
    from koordcore.bus.client.opening import connect
    from koordcore.bus.names import BusNames
    from koordcore.bus.read.stream_reader import ApiError
    from koordcore.bus.setup.bootstrap import (
        FactsGone,
        ServerTooOld,
        StreamDiffers,
        bootstrap_consumers,
        replicas_of,
    )
    from koordcore.bus.setup.bootstrap import bootstrap as create
    from koordcore.bus.setup.bootstrap import consumers as durable
    from koordcore.bus.setup.manifest import BOOTSTRAP
    from koordcore.bus.setup.streams import StreamSizes
    from koordcore.bus.setup.streams import streams as wanted

    settings = replace(operator_settings(principal=BOOTSTRAP.name), connect_seconds=wait)
    sizes = StreamSizes() if log_size is None else StreamSizes(ev=log_size)
    try:
        connection = await connect(settings)
        try:
            async with asyncio.timeout(wait):
                while True:
                    try:
                        names = BusNames(cluster_name())
                        number = replicas or await replicas_of(connection, names.ev) or 1
                        specs = wanted(names, replicas=number, sizes=sizes)
                        done = await create(connection, specs, new_log=new_log)
                        done |= await bootstrap_consumers(connection, durable(names))
                    except NoAnswer:  # JetStream has no leader yet
                        await asyncio.sleep(POLL_SECONDS)
                    else:
                        return {stream: str(change) for stream, change in done.items()}
        finally:
            await connection.drain_and_close()
    except TimeoutError:
        fail(f"the servers did not accept requests for streams within {wait:g} s")
    except FactsGone as error:
        fail(str(error), status=LOG_GONE)
    except (ConnectRefused, NotConnected, ServerTooOld, StreamDiffers, ApiError) as error:
        fail(f"the log: {error}")


@app.command()
def consumers() -> None:
    """Show how far each service has read the log: events and seconds behind, and whether it has halted.

    A service folds the events into its state, one by one. Exit status 1 if a fold has halted. Processes are those that
    KOORD_MANAGER, KOORD_SCHEDULER, KOORD_DESCHEDULER and KOORD_PROJECTOR name, else those of the running stack.

    Examples:

      koord bus consumers
    """
    rows: list[list[object]] = []
    halted = False
    for name, url in (named_instances() or _instances_of_stack()).items():
        figures = fold_figures(url)
        if figures is None:
            rows.append([name, "-", "no answer", None, None])
            continue
        for fold in sorted(figures.get(LAG, {})):
            stopped = figures.get(HALTED, {}).get(fold, 0.0) > 0
            halted = halted or stopped
            behind = f"{figures.get(LAG_SECONDS, {}).get(fold, 0.0):.2f}"
            rows.append([name, fold, int(figures[LAG][fold]), behind, "halted" if stopped else "follows"])
    show_table(["process", "fold", "events behind", "seconds behind", "state"], rows, empty="no folds")
    if halted:
        raise typer.Exit(1)


def _instances_of_stack() -> dict[str, str]:
    stack = running_stack(live_directory())
    if stack is None:
        fail(nothing_runs("stack", live_directory(), "KOORD_MANAGER=http://host:port"))
    return {process.name: process.urls["http"] for process in stack.processes if "http" in process.urls}


@app.command()
def skip(
    fold: Annotated[str, typer.Argument(help="The halted fold, as in `koord bus consumers`.")],
    position: Annotated[int, typer.Argument(help="Position of the event that it cannot read.", min=1)],
    reason: Annotated[str, typer.Option("--reason", help="Why the event may be skipped.", prompt=True)],
) -> None:
    """Let a halted service skip the event that it cannot read. The log records the skip, and every replay honours it.

    The command refuses if the fold has not halted at this event. Skipping a readable event would make folds differ.

    Examples:

      koord bus skip manager 1204 --reason "written by a test, never deployed"
    """
    if not reason.strip():
        fail("--reason must not be empty", status=2)
    refusal = why_not_skip(fold, position, _readiness_by_fold())
    if refusal is not None:
        fail(refusal)
    seq = wait_for(_skip(fold, position, reason.strip()))
    console.print(f"recorded at position {seq}: {fold} skips {position}")


def why_not_skip(fold: str, position: int, readiness: Mapping[str, str]) -> str | None:
    """Return the reason why a service may not skip an event; None if it has halted before exactly this event.

    Args:
        fold: Name of the service's fold.
        readiness: Fold -> text of its service's `/readyz`, for each running service.

    Source:
        event-bus spec, 8
    """
    if fold not in readiness:
        running = ", ".join(sorted(readiness)) or "none"
        return f"no running service has a fold {fold!r}; known folds: {running}"
    halted = _HALTED_BEFORE.search(readiness[fold])
    if halted is None:
        return f"{fold} has not halted; only a halted fold may skip an event"
    if int(halted[1]) != position:
        return f"{fold} has halted before event {halted[1]}, not before {position}"
    return None


def _readiness_by_fold() -> dict[str, str]:
    found: dict[str, str] = {}
    for url in filter(None, map(find_service, SERVICES)):
        for fold in (fold_figures(url) or {}).get(LAG, {}):
            found[fold] = ask(f"{url}/readyz", timeout=5).text
    return found


async def _skip(fold: str, position: int, reason: str) -> int:
    async with open_log() as log:
        if await log.facts.at(position) is None:
            fail(f"there is no event at position {position}")
        operator = getpass.getuser()
        ref = AggregateRef("fold", fold)
        last = await log.bus.events.last_of(ref)
        event = EventSkipped(seq=position, reason=reason, operator=operator)
        origin = Origin(
            causation_id=f"skip/{fold}/{position}",
            correlation_id=str(ref),
            actor=f"koord/{operator}",
            occurred_at=rfc3339(run_clock().now()),
        )
        outcome = await log.bus.events.append(
            CATALOGUE.seal([Draft(ref, event, last.seq if last is not None else 0)], origin)
        )
        if not isinstance(outcome, Appended):
            fail(f"the log refused the record: {outcome}")
        return outcome.last_seq


@dlq.command("list")
def list_parked(
    consumer: Annotated[str | None, typer.Option("--consumer", help="Only the items of this worker.")] = None,
) -> None:
    """Show parked work (messages that a service could not process and set aside), oldest first.

    Examples:

      koord bus dlq list
    """
    rows = [
        [
            item.number,
            item.parked.consumer,
            f"{item.parked.stream}/{item.parked.seq}",
            item.parked.deliveries,
            item.parked.error,
        ]
        for item in wait_for(_parked(consumer))
    ]
    show_table(["number", "consumer", "message", "tries", "error"], rows, empty="nothing is parked")


@dlq.command("show")
def show_parked(number: Annotated[int, typer.Argument(help="Number of the item, from the list.")]) -> None:
    """Show one parked item with its message.

    Examples:

      koord bus dlq show 7
    """
    item = wait_for(_one(number)).parked
    show_document(
        {
            "number": number,
            "consumer": item.consumer,
            "stream": item.stream,
            "position": item.seq,
            "subject": item.subject,
            "deliveries": item.deliveries,
            "error": item.error,
            "trace": item.trace_id,
            "parkedAt": item.parked_at,
            "headers": item.headers,
            "body": item.body.decode(errors="replace"),
            **({"fullSize": item.full_size, "fullSha256": item.full_sha256} if item.full_size else {}),
        },
        Format.YAML,
    )


@dlq.command("retry")
def retry_parked(number: Annotated[int, typer.Argument(help="Number of the item, from the list.")]) -> None:
    """Hand a parked item to its service again and remove it from the list.

    Examples:

      koord bus dlq retry 7
    """
    consumer = wait_for(_retry(number)).parked.consumer
    console.print(f"{consumer} retries")


@dlq.command("drop")
def drop_parked(number: Annotated[int, typer.Argument(help="Number of the item, from the list.")]) -> None:
    """Remove a parked item. Its work will not be done.

    Examples:

      koord bus dlq drop 7
    """
    wait_for(_drop(number))
    console.print(f"item {number} dropped")


async def _parked(consumer: str | None) -> Sequence[ParkedItem]:
    async with open_log() as log:
        from koordcore.bus.work.dlq import DeadLetters

        return await DeadLetters(log.connection, log.names).list(consumer)


async def _one(number: int) -> ParkedItem:
    async with open_log() as log:
        from koordcore.bus.work.dlq import DeadLetters, NoSuchItem

        try:
            return await DeadLetters(log.connection, log.names).show(number)
        except NoSuchItem as error:
            fail(str(error))


async def _retry(number: int) -> ParkedItem:
    async with open_log() as log:
        from koordcore.bus.work.dlq import DeadLetters, NoSuchItem

        try:
            return await DeadLetters(log.connection, log.names).retry(number)
        except (NoSuchItem, ValueError) as error:
            fail(str(error))


async def _drop(number: int) -> None:
    async with open_log() as log:
        from koordcore.bus.work.dlq import DeadLetters, NoSuchItem

        try:
            await DeadLetters(log.connection, log.names).drop(number)
        except NoSuchItem:
            fail(f"no parked item {number}")
