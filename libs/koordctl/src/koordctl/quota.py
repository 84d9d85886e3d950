"""`koord quota tree`: what each quota may use, what it uses, and who lends to whom, from the leading scheduler.

Source:
    scheduler-core spec, 10.4
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import typer

from koordctl.access.clients import scheduler
from koordctl.render.console import Line
from koordctl.render.output import Format, Output, console, fail, show_document
from koordctl.render.units import amounts_text, sentence_in_cores

UNLIMITED = 1 << 60
"""A larger maximum means no limit; it is the default of the built-in quotas."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The computation of the current limit (runtime) of one resource of a quota."""

    resource: str
    reason: str  # Sentence that shows every term of the computation
    lent: int = 0  # Amount that this quota lends to others, in milli-cores or whole units
    borrowed: int = 0  # Amount that this quota borrows from others, in the same units
    lenders: dict[str, int] = {}  # Amount that each other quota lends to this one, by name of the quota
    borrowers: dict[str, int] = {}  # Amount that each other quota borrows from this one, by name of the quota


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    parent: str  # Name of its parent
    pods: int  # Number of its pods
    min: dict[str, int]  # Guaranteed amounts, in milli-cores or whole units
    max: dict[str, int]  # Upper limits
    used: dict[str, int]  # Requests of its placed pods
    request: dict[str, int]  # Requests of all its pods
    runtime: dict[str, int] | None  # Current limits, or None if only `max` limits the quota
    shares: list[Share] = []  # Computation of the runtime, one for each resource
    warnings: list[str] = []  # Sentences about unusual settings of the quota


def amounts(values: Mapping[str, int]) -> str:
    """For example `cpu 4, memory 8.0Gi`, or `-` if there are none. Amounts from `UNLIMITED` on are left out: no limit.

    `values`: milli-cores for cpu, whole units for other resources.
    """
    return amounts_text({name: amount for name, amount in values.items() if abs(amount) < UNLIMITED})


def quota_line(row: QuotaRow) -> list[Line]:
    """The line for one quota; its name is red if the quota uses more than its runtime."""
    over = row.runtime is not None and any(row.used.get(name, 0) > limit for name, limit in row.runtime.items())
    runtime = "" if row.runtime is None else f"  runtime {amounts(row.runtime)}"
    line = (
        f"  used {amounts(row.used)}{runtime}  request {amounts(row.request)}"
        f"  min {amounts(row.min)}  max {amounts(row.max)}"
    )
    colour = "red" if over else "green" if row.pods else "bold"
    return [Line(row.name, colour), Line(f"{line}  {row.pods} pod{'s' if row.pods != 1 else ''}")]


def sections(row: QuotaRow) -> list[str]:
    """The sentences below a quota: one for each resource in use, lent or borrowed, and the warnings."""
    told = [share for share in row.shares if share.lent or share.borrowed or row.request.get(share.resource)]
    return [
        *(f"{share.resource}: {sentence_in_cores(share.reason)}" for share in told),
        *(f"warning: {each}" for each in row.warnings),
    ]


app = typer.Typer(help="Elastic quotas: limits, use and borrowing.", no_args_is_help=True)


@app.callback()
def _root() -> None:  # pyright: ignore[reportUnusedFunction]  # keeps `tree` a command of its own
    """Elastic quotas: limits, use and borrowing."""


@app.command()
def tree(
    tree: Annotated[str | None, typer.Option("--tree", help="Only the quota tree with this id.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show every quota with min, max, runtime, used and request, and a sentence for each shared resource.

    Examples:

      koord quota tree

      koord quota tree --tree pool-a -o json
    """
    answer = scheduler.get("/apis/v1/plugins/ElasticQuota/trees", {"tree": tree})
    if output in (Format.JSON, Format.YAML):
        show_document(answer, output)
        return
    trees = {name: msgspec.convert(rows, list[QuotaRow]) for name, rows in answer.items()}
    if tree is not None and not trees.get(tree):
        fail(f"there is no quota tree {tree}")
    for name, rows in trees.items():
        if rows:
            console.print(f"quota tree {name}" if name else "quotas", style="bold")
            for entry in _drawn(rows):
                console.print_below(*entry)


def _drawn(rows: list[QuotaRow]) -> Iterator[tuple[list[Line], str, str]]:
    """The lines below the root, each with what stands before it and before its continuation."""
    names = {row.name for row in rows}
    below: dict[str, list[QuotaRow]] = {}
    for row in rows:
        below.setdefault(row.parent if row.parent in names else "", []).append(row)

    beside, last, between = ("│   ", "└── ", "├── ") if console.has_lines else ("|   ", "`-- ", "|-- ")

    def branch(entries: Sequence[QuotaRow | str], before: str) -> Iterator[tuple[list[Line], str, str]]:
        for number, entry in enumerate(entries, 1):
            rest = before + ("    " if number == len(entries) else beside)
            first = before + (last if number == len(entries) else between)
            if isinstance(entry, str):
                yield [Line(entry, "dim")], first, rest
            else:
                yield quota_line(entry), first, rest
                yield from branch([*sections(entry), *below.get(entry.name, [])], rest)

    return branch(below.get("", []), "")
