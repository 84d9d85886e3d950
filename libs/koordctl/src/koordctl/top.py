"""`koord top node|pod|gpu`: show current use from the newest report of each agent, and the given shares of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from koordctl.access.clients import projector
from koordctl.kind_words import KindGroup
from koordctl.render.output import fail, show_table, write_line
from koordctl.render.units import cores, gibibytes

if TYPE_CHECKING:
    from koordcore.events.observation import NodeUsageReported

    from koordctl.objects.devices import GpuSort

app = typer.Typer(cls=KindGroup, help="Current use of nodes and pods, and given shares of GPUs.", no_args_is_help=True)

REFRESH_SECONDS: Final = 2.0
NODE_COLUMNS: Final = (
    "node",
    "cpu",
    "cpu%",
    "best effort",
    "quota",
    "memory",
    "memory%",
    "batch free",
    "pods",
    "reported (utc)",
)
POD_COLUMNS: Final = ("namespace", "pod", "node", "qos", "priority", "cpu", "memory")
Sort: TypeAlias = Literal["cpu", "memory", "name"]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh every 2 s until interrupted.")]
Sorting = Annotated[str, typer.Option("--sort", help="cpu, memory or name.")]
Row: TypeAlias = Sequence[object]


@app.command("node")
def top_node(
    name: Annotated[str | None, typer.Argument(help="Only this node.")] = None,
    sort: Sorting = "cpu",
    watch: Watch = False,
) -> None:
    """Show nodes: their use, the best-effort part of it, and the quota of best effort.

    The quota is the last reported one. A change below a tenth of the node is reported within ten minutes.

    Examples:

      koord top node

      koord top node --watch --sort memory
    """
    chosen = _sort(sort)
    _show(NODE_COLUMNS, lambda: node_rows(_nodes(name), name, chosen), watch=watch, empty="there are no nodes")


@app.command("pod")
def top_pod(
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only pods of this node.")] = None,
    sort: Sorting = "cpu",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of pods.")] = 40,
    watch: Watch = False,
) -> None:
    """Show pods: their average use in the newest report of their node.

    Examples:

      koord top pod

      koord top pod --node node-1 --sort memory -w
    """
    chosen = _sort(sort)

    def rows() -> list[Row]:
        names = [str(item["name"]) for item in _nodes(node) if node in (None, item["name"])]
        from koordctl.access.log import wait_for  # only now: the other commands need no connection to the log

        return pod_rows(wait_for(_reports(names)), namespace, chosen)[:limit]

    where = f" on node {node}" if node else ""
    among = f" in namespace {namespace}" if namespace else ""
    _show(POD_COLUMNS, rows, watch=watch, empty=f"no pods{among} reported{where} yet")


@app.command("gpu")
def top_gpu(
    node: Annotated[str | None, typer.Option("--node", help="Only GPUs of this node.")] = None,
    sort: Annotated[str, typer.Option("--sort", help="given, free or name.")] = "given",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of GPUs.")] = 40,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="Position of the log, or RFC 3339 time: the GPUs at that moment.")
    ] = None,
    watch: Watch = False,
) -> None:
    """Show GPUs: the given and the free share of each card, and the pods that hold it.

    Examples:

      koord top gpu

      koord top gpu --sort free --node node-1

      koord top gpu --as-of 2026-11-21T08:30:00Z
    """
    from koordctl.objects.devices import GPU_COLUMNS, devices_of, gpu_rows, gpu_summary

    orders: dict[str, GpuSort] = {"given": "given", "free": "free", "name": "name"}
    if sort not in orders:
        fail(f"--sort: must be given, free or name, got {sort!r}", status=2)
    where = f" on node {node}" if node else ""
    empty = f"no GPUs{where}: no Device object states one"
    if watch:
        _show(GPU_COLUMNS, lambda: gpu_rows(devices_of(node, as_of), orders[sort])[:limit], watch=watch, empty=empty)
        return
    devices = devices_of(node, as_of)
    rows = gpu_rows(devices, orders[sort])
    show_table(GPU_COLUMNS, rows[:limit], empty=empty)
    if rows:
        write_line(gpu_summary(devices))


def _nodes(name: str | None) -> list[dict[str, Any]]:
    """End the command if `name` is given and is not a node that the projector knows."""
    nodes: list[dict[str, Any]] = projector.get("/api/nodes")["nodes"]
    if name is not None and not any(node["name"] == name for node in nodes):
        fail(f"there is no node {name}")
    return nodes


def node_rows(nodes: Sequence[dict[str, Any]], name: str | None, sort: Sort) -> list[Row]:
    """Greatest use first and nodes without a report last, or by name.

    Args:
        nodes: As the projector's `/api/nodes` returns them.
        name: Only this node; None for all.
    """
    chosen = [node for node in nodes if name is None or node["name"] == name]
    chosen.sort(key=lambda node: node["name"])
    if sort != "name":
        chosen.sort(key=lambda node: -(node[f"{sort}_used"] if node[f"{sort}_used"] is not None else -1))
    return [
        (
            node["name"],
            cores(node["cpu_used"]),
            _share(node["cpu_used"], node["cpu_milli"]),
            cores(node["be_cpu_used"]),
            "none" if node["be_quota_us"] < 0 else cores(node["be_quota_us"] // 100),
            gibibytes(node["memory_used"]),
            _share(node["memory_used"], node["memory_bytes"]),
            cores(None if node["batch_cpu"] is None else node["batch_cpu"] - node["batch_cpu_requested"]),
            node["pods_running"],
            _time(node["reported_at"]),
        )
        for node in chosen
    ]


def pod_rows(reports: dict[str, NodeUsageReported], namespace: str | None, sort: Sort) -> list[Row]:
    """Greatest use first, or by namespace and name.

    Args:
        reports: Node name -> its newest usage report.
        namespace: Only pods of this namespace; None for all.
    """
    pods = [
        (node, pod)
        for node, report in reports.items()
        for pod in report.pods
        if namespace is None or pod.namespace == namespace
    ]
    pods.sort(key=lambda found: (found[1].namespace, found[1].name))
    if sort != "name":
        pods.sort(key=lambda found: -(found[1].usage.cpu_milli if sort == "cpu" else found[1].usage.memory_bytes))
    return [
        (
            pod.namespace,
            pod.name,
            node,
            pod.qos,
            pod.priority_class,
            cores(pod.usage.cpu_milli),
            gibibytes(pod.usage.memory_bytes),
        )
        for node, pod in pods
    ]


async def _reports(names: Sequence[str]) -> dict[str, NodeUsageReported]:
    """The newest usage report of each node that has a readable one."""
    from koordcore.events.envelope import AggregateRef, name_from_token, name_token

    from koordctl.access.log import open_log, readable_report

    async with open_log() as log:
        stored = await log.bus.observations.latest([AggregateRef("node", name_token(name)) for name in names])
    return {name_from_token(event.ref.id): report for event in stored if (report := readable_report(event)) is not None}


def _show(columns: Sequence[str], rows: Callable[[], list[Row]], *, watch: bool, empty: str) -> None:
    if not watch:
        show_table(columns, rows(), empty=empty)
        return
    from koordctl.render.rich_console import show_live

    show_live(columns, rows, seconds=REFRESH_SECONDS)


def _sort(text: str) -> Sort:
    found: dict[str, Sort] = {"cpu": "cpu", "memory": "memory", "name": "name"}
    if text not in found:
        fail(f"--sort: must be cpu, memory or name, got {text!r}", status=2)
    return found[text]


def _share(part: int | None, whole: int) -> str:
    return "-" if part is None or whole <= 0 else f"{100 * part / whole:.0f}%"


def _time(text: str | None) -> str:
    return "-" if not text else text[11:19]
