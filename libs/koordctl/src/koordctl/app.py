"""The command tree of `koord`. Every command lives in `commands/`; this file only names them (see `lazy_tree`)."""

from typing import Annotated

import typer

from koordctl.lazy_tree import Entry, lazy_group

RUN, ASK, LOG = "Run the embedded stack", "Objects and explanations", "The log"

COMMANDS = (
    Entry("up", RUN, "Start the embedded stack: NATS, Postgres, manager, scheduler, projector, agents.", "stack", "up"),
    Entry("down", RUN, "Stop the embedded stack; its data stays.", "running", "down"),
    Entry(
        "status",
        RUN,
        "Show the processes of the stack, and who leads. Exit status 0 when all are ready and led, 1 otherwise.",
        "running",
        "status",
    ),
    Entry(
        "demo",
        RUN,
        "Place a real trace (openb: 1,523 nodes, 8,152 pods) on a live cluster, with this host as a measured node.",
        "demo",
        "demo",
    ),
    Entry("apply", ASK, "Apply manifests: every document is taken whole or refused whole.", "objects", "apply"),
    Entry("lint", ASK, "Check manifests as `koord apply` and the webhooks would, without a cluster.", "lint", "lint"),
    Entry("delete", ASK, "Delete objects by kind and name, or those that manifests name.", "objects", "delete"),
    Entry("get", ASK, "Show objects now, or as they were at any position or time.", "objects", "get"),
    Entry("explain", ASK, "Why is it as it is? A pod's or a node's story from the log.", "explain"),
    Entry("top", ASK, "Who uses how much now, by the newest reports.", "top"),
    Entry(
        "recommend", ASK, "What containers should request, learned from what they have used.", "recommend", "recommend"
    ),
    Entry("quota", ASK, "Elastic quotas: who may use how much, and who lends to whom.", "quota"),
    Entry(
        "gang",
        ASK,
        "Gangs: how many members are pending, wait with a node or are bound, and what a gang waits for.",
        "gang",
        "gang",
    ),
    Entry("node", ASK, "What this machine lets an agent measure and set.", "node"),
    Entry("scheduler", ASK, "Check a scheduler's configuration before it runs.", "scheduler"),
    Entry("events", LOG, "Show facts of the log, and follow it.", "events", "events"),
    Entry(
        "replay",
        LOG,
        "Rebuild the state from the log alone, up to a position or time: what is in it, its hash, and who agrees.",
        "replay.replay",
        "replay",
    ),
    Entry(
        "verify",
        LOG,
        "Check that the manager, the projector and a state rebuilt from the log are equal. Works under load.",
        "verify",
        "verify",
    ),
    Entry("bus", LOG, "The log itself: streams, how far services are behind, parked work, skips.", "bus"),
)
"""In the order of the help."""

app = typer.Typer(
    name="koord",
    cls=lazy_group(COMMANDS),
    help=(
        "QoS-aware colocation as an event-sourced system: run it, ask it, replay it.\n\n"
        "A *position* is an event's number in the log (`koord events` shows it): `--as-of`, `--to`, `--from` and "
        "`--since` take one, or a time.\n\n"
        "Commands ask the stack that runs in `./var` or `KOORD_VAR`; elsewhere the services at `KOORD_MANAGER`, "
        "`KOORD_PROJECTOR`, `KOORD_SCHEDULER` (http://host:port) and the log "
        "at `KOORD_NATS` (nats://host:port, with the key file `KOORD_NATS_SEED`).\n\n"
        "Exit status: 0 done; 1 understood, but refused, failed, different or not found (a position beyond the end of "
        "the log, too); 2 wrong usage: words that mean nothing, a file that cannot be read; 130 interrupted."
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"koord {version('koordctl')}")
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""
