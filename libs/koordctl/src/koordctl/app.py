"""The command tree of `koord`. Every command lives in `commands/`; this file only names them."""

from importlib.metadata import version
from typing import Annotated

import typer

from koordctl.commands import (
    bus,
    demo,
    events,
    explain,
    gang,
    history,
    lint,
    node,
    objects,
    quota,
    recommend,
    scheduler,
    stack,
    top,
)

app = typer.Typer(
    name="koord",
    help=(
        "QoS-aware colocation as an event-sourced system: run it, ask it, replay it.\n\n"
        "A *position* is an event's number in the log (`koord events` shows it): `--as-of`, `--to`, `--from` and "
        "`--since` take one, or a time.\n\n"
        "Commands ask the stack that runs in `./var` or `KOORD_VAR`; elsewhere the services at `KOORD_MANAGER`, "
        "`KOORD_PROJECTOR`, `KOORD_SCHEDULER` (http://host:port) and the log "
        "at `KOORD_NATS` (nats://host:port, with the key file `KOORD_NATS_SEED`).\n\n"
        "Exit status: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted."
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"koord {version('koordctl')}")
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


RUN, ASK, LOG = "Run the embedded stack", "Objects and explanations", "The log"

app.command(rich_help_panel=RUN)(stack.up)
app.command(rich_help_panel=RUN)(stack.down)
app.command(rich_help_panel=RUN)(stack.status)
app.command(rich_help_panel=RUN)(demo.demo)
app.command(rich_help_panel=ASK)(objects.apply)
app.command(rich_help_panel=ASK)(lint.lint)
app.command(rich_help_panel=ASK)(objects.delete)
app.command(rich_help_panel=ASK)(objects.get)
app.add_typer(explain.app, name="explain", rich_help_panel=ASK)
app.add_typer(top.app, name="top", rich_help_panel=ASK)
app.command(rich_help_panel=ASK)(recommend.recommend)
app.add_typer(quota.app, name="quota", rich_help_panel=ASK)
app.command(rich_help_panel=ASK)(gang.gang)
app.add_typer(node.app, name="node", rich_help_panel=ASK)
app.add_typer(scheduler.app, name="scheduler", rich_help_panel=ASK)
app.command(rich_help_panel=LOG)(events.events)
app.command(rich_help_panel=LOG)(history.replay)
app.command(rich_help_panel=LOG)(history.verify)
app.add_typer(bus.app, name="bus", rich_help_panel=LOG)
