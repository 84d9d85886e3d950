"""`koord quota tree`: what each quota may use, what it uses, and who lends to whom, from the leading scheduler."""

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from koordctl.access.clients import scheduler
from koordctl.explain.quotas import QuotaRow, quota_text, sections
from koordctl.render.output import Format, console, fail, show_document

PIPED_WIDTH = 500

app = typer.Typer(help="Elastic quotas: limits, use and borrowing.", no_args_is_help=True)


@app.callback()
def _root() -> None:  # pyright: ignore[reportUnusedFunction]  # keeps `tree` a command of its own
    """Elastic quotas: limits, use and borrowing."""


@app.command()
def tree(
    tree: Annotated[str | None, typer.Option("--tree", help="Only the quota tree with this id.")] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="table (for people), json or yaml.")] = Format.TABLE,
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
            wide = console if console.is_terminal else Console(width=PIPED_WIDTH)
            wide.print(_drawn(name, rows), highlight=False)


def _drawn(name: str, rows: list[QuotaRow]) -> Tree:
    drawn = Tree(f"[bold]quota tree {escape(name)}[/bold]" if name else "[bold]quotas[/bold]")
    branches = {row.name: Tree("") for row in rows}
    for row in rows:
        branch = branches[row.name]
        branch.label = quota_text(row)
        for line in sections(row):
            branch.add(f"[dim]{escape(line)}[/dim]")
        branches.get(row.parent, drawn).children.append(branch)
    return drawn
