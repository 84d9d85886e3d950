"""`koord simulate`: placement policies on recorded workloads, without a cluster."""

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Annotated

import typer
from koordcore.fragmentation.policies import PolicyName

from koordctl.demo.trace import TRACE_FOLDER, InvalidTrace, find_trace
from koordctl.render.output import console, fail, progress, show_table
from koordctl.simulate.gpu_repack import repack as repacked
from koordctl.simulate.gpu_report import Compared, compared, read_published, write_report
from koordctl.simulate.gpu_run import WORKLOADS, Load, read_trace
from koordctl.simulate.gpu_sweep import Sweep, summaries, sweep

app = typer.Typer(help="Run placement policies on recorded workloads. No cluster is needed.", no_args_is_help=True)


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]  # makes a single command a subcommand
    """Run placement policies on recorded workloads. No cluster is needed."""


@app.command("gpu")
def gpu(
    workload: Annotated[
        list[str] | None, typer.Option("--workload", "-w", help="A workload, repeatable; default: all 17.")
    ] = None,
    policy: Annotated[
        list[PolicyName] | None, typer.Option("--policy", "-p", help="A policy, repeatable; default: all.")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="One seed, or the first and last one: 42-51.")] = "42-51",
    ratio: Annotated[float, typer.Option("--ratio", min=0.01, help="Arrivals, as a part of the capacity.")] = 1.3,
    threshold: Annotated[
        float, typer.Option("--threshold", min=0, max=100, help="Percentage of the pods that typical pods cover.")
    ] = 95,
    data: Annotated[Path | None, typer.Option("--data", help=f"Folder of the traces; default: {TRACE_FOLDER}.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the CSV files and pictures.")] = Path(
        "var/simulate/gpu"
    ),
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Number of processes; default: one a CPU.")] = None,
) -> None:
    """Compare placement policies by the GPU capacity that they can allocate.

    The pods of a recorded workload arrive one by one on 1,213 empty nodes with 6,212 GPUs, until they request 130 % of
    the GPUs. Each pod is placed at once or never. The scores are those of the scheduler. The table shows the allocated
    percentage beside the published one. The files are curves.csv, summary.csv, comparison.csv and one picture for
    each workload.

    Examples:

      koord simulate gpu

      koord simulate gpu -w default -p FGD -p BestFit --seeds 42
    """
    workloads = workload or list(WORKLOADS)
    for name in workloads:
        if name not in WORKLOADS:
            fail(f"--workload: must be one of {', '.join(WORKLOADS)}, got {name!r}", status=2)
    asked = Sweep(
        folder=data or find_trace("--data"),
        workloads=list(dict.fromkeys(workloads)),
        policies=list(dict.fromkeys(policy or PolicyName)),
        seeds=_seeds(seeds),
        load=Load(ratio=ratio, threshold_percent=threshold),
    )
    try:
        published = read_published(asked.folder)
        ended = count(1)
        with progress("runs", len(asked.runs), counted=True) as see:
            outcomes = sweep(asked, jobs or os.cpu_count() or 1, lambda: see(next(ended)))
    except InvalidTrace as error:
        fail(str(error), status=2)
    found = summaries(outcomes)
    beside = compared(found, published, round(100 * ratio))
    write_report(out, outcomes, found, beside)
    _show(beside, asked)
    console.print(f"{len(outcomes):,} runs; CSV files and pictures in {out}")


@app.command("repack")
def repack(
    workload: Annotated[str, typer.Option("--workload", "-w", help="A workload.")] = "default",
    policy: Annotated[
        PolicyName, typer.Option("--policy", "-p", help="The policy that has placed the pods.")
    ] = PolicyName.FGD,
    seeds: Annotated[str, typer.Option("--seeds", help="One seed, or the first and last one: 42-51.")] = "42",
    ratio: Annotated[float, typer.Option("--ratio", min=0.01, help="Arrivals, as a part of the capacity.")] = 1.3,
    moves: Annotated[int, typer.Option("--moves", min=0, help="Largest number of pods that move.")] = 100,
    data: Annotated[Path | None, typer.Option("--data", help=f"Folder of the traces; default: {TRACE_FOLDER}.")] = None,
) -> None:
    """Show how many GPUs a plan of few moves frees for waiting pods on a full recorded cluster.

    The workload arrives as in `koord simulate gpu`. Then pods move so that waiting pods with whole GPUs get a node. FGD
    chooses the new nodes.

    Examples:

      koord simulate repack

      koord simulate repack -w default -p BestFit --seeds 42 --moves 100
    """
    if workload not in WORKLOADS:
        fail(f"--workload: must be one of {', '.join(WORKLOADS)}, got {workload!r}", status=2)
    try:
        trace = read_trace(data or find_trace("--data"), workload)
    except InvalidTrace as error:
        fail(str(error), status=2)
    rows: list[list[str]] = []
    for seed in _seeds(seeds):
        found = repacked(trace, policy, seed, Load(ratio=ratio), moves)
        shares = [f"{gpus:,.1f} ({100 * gpus / found.capacity:.2f}%)" for gpus in (found.before, found.after)]
        rows.append([str(seed), *shares, str(found.moves), f"{found.placed} of {found.waiting:,}"])
    show_table(["seed", "allocated GPUs before", "after", "moves", "waiting pods placed"], rows)


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        fail(f"--seeds: must be a number, or two as in 42-51, got {text!r}", status=2)
    return list(range(int(first), int(last or first) + 1))


def _show(beside: Sequence[Compared], asked: Sweep) -> None:
    """One row for each workload and percentage: own and published allocation of every policy."""
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for each in beside:
        own = f"{each.summary.alloc_mean:.2f}"
        cell = own if each.published is None else f"{own} ({each.published:.2f})"
        rows.setdefault((each.summary.workload, each.summary.arrived_pct), {})[each.summary.policy] = cell
    lines = [[*key, *(cells.get(name) for name in asked.policies)] for key, cells in rows.items()]
    show_table(["workload", "arrived %", *asked.policies], lines)
    console.print("allocated GPUs in percent, mean of the seeds (published)")
