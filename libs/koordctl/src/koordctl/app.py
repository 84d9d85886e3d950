"""The list of all commands of `koord`. Each is imported when it is called (see `lazy_tree`)."""

from functools import partial
from typing import Annotated

import typer

from koordctl.kubectl_words import our_words, version_text
from koordctl.lazy_tree import CONTEXT, Entry, lazy_group

RUN, ASK, LOG = "Run the embedded stack", "Objects and explanations", "The log"

EXPLAIN_HELP = "Explain a pod, a node, a Reservation or a migration from the log."
EXPLAIN = (
    Entry(
        "pod",
        "",
        "Show a pod's life: admission, attempts with their reasons, placement, start, usage; for a denied pod, the "
        "rules.",
        "koordctl.pod.explain",
        "pod",
    ),
    Entry(
        "node",
        "",
        "Show a node: status, usage, hardware with who holds what, overcommit, best-effort suppression, NodeSLO.",
        "koordctl.node.explain",
        "node",
    ),
    Entry(
        "reservation",
        "",
        "Show a Reservation: its placement, the pods that use it, and why pending pods do not.",
        "koordctl.reservation.explain",
        "reservation",
    ),
    Entry(
        "migration",
        "",
        "Show a migration: why it was asked for, each step with its reason, and what it cost.",
        "koordctl.descheduling.migration",
        "migration",
    ),
)
COMMANDS = (
    Entry(
        "up",
        RUN,
        "Start the embedded stack: NATS, Postgres, manager, scheduler, projector, agents.",
        "koordctl.stack.up",
        "up",
    ),
    Entry("down", RUN, "Stop the embedded stack; its data is kept.", "koordctl.stack.running", "down"),
    Entry(
        "status",
        RUN,
        "Show processes and leaders. Exit status 0 if all are ready and have a leader, else 1.",
        "koordctl.stack.running",
        "status",
    ),
    Entry(
        "demo",
        RUN,
        "Place a real trace (openb: 1,523 nodes, 8,152 pods) on a live cluster, with this host as a measured node.",
        "koordctl.demo.command",
        "demo",
    ),
    Entry(
        "apply",
        ASK,
        "Apply manifests: every document is accepted or refused as a whole.",
        "koordctl.objects.command",
        "apply",
    ),
    Entry(
        "lint",
        ASK,
        "Check manifests as `koord apply` and the webhooks would, without a cluster.",
        "koordctl.objects.lint",
        "lint",
    ),
    Entry(
        "delete",
        ASK,
        "Delete objects by kind and name, or those that manifests name.",
        "koordctl.objects.command",
        "delete",
    ),
    Entry("get", ASK, "Show objects now, or as they were at any position or time.", "koordctl.objects.get", "get"),
    Entry(
        "fit",
        ASK,
        "Show where pods would land now, what remains, and what runs out first. Nothing is changed.",
        "koordctl.fit",
        "fit",
    ),
    Entry(
        "deschedule",
        ASK,
        "Show which pods the descheduler would move and where they would land, or let it run a round now.",
        "koordctl.descheduling.deschedule",
        "deschedule",
    ),
    Entry(
        "reserve",
        ASK,
        "Reserve resources for the pods of a workload.",
        "koordctl.reservation.reserve",
        "reserve",
    ),
    Entry(
        "cordon",
        ASK,
        "Close nodes for new pods. Pods that run there stay.",
        "koordctl.descheduling.cordon",
        "cordon",
    ),
    Entry(
        "uncordon",
        ASK,
        "Open nodes for new pods again, also nodes that a drain has emptied. A running drain still keeps pods away.",
        "koordctl.descheduling.cordon",
        "uncordon",
    ),
    Entry(
        "drain",
        ASK,
        "Empty a node: reserve a place for each of its pods, show the plan, and migrate the pods after --confirm.",
        "koordctl.descheduling.drain",
        "drain",
    ),
    Entry(
        "audit",
        ASK,
        "Show what the descheduler changed or refused to change, "
        "and who changed its configuration or tried another one.",
        "koordctl.descheduling.audit",
        "audit",
    ),
    Entry("explain", ASK, EXPLAIN_HELP, "koordctl.app", "explain"),
    Entry("trace", ASK, "Show the life of a pod as one trace over all services.", "koordctl.pod.trace"),
    Entry("top", ASK, "Current use of nodes and pods, and given shares of GPUs.", "koordctl.top"),
    Entry(
        "recommend",
        ASK,
        "Show the requests that containers should have, learned from their use.",
        "koordctl.recommend",
        "recommend",
    ),
    Entry("quota", ASK, "Elastic quotas: limits, use and borrowing.", "koordctl.quota"),
    Entry(
        "gang",
        ASK,
        "Show gangs: how many members are pending, wait at Permit or are bound, and what each gang waits for.",
        "koordctl.gang",
        "gang",
    ),
    Entry(
        "simulate",
        RUN,
        "Run placement policies on recorded workloads. No cluster is needed.",
        "koordctl.simulate.command",
    ),
    Entry("node", ASK, "Show what an agent can measure and set on this machine.", "koordctl.node.machine"),
    Entry(
        "keys",
        RUN,
        "Keys, certificates and NATS configuration for compose and Kubernetes.",
        "koordctl.installation.keys",
    ),
    Entry(
        "tokens",
        RUN,
        "Static tokens for the services' HTTP APIs: create, list, revoke.",
        "koordctl.installation.tokens",
    ),
    Entry(
        "login",
        RUN,
        "Log in at the issuer of an installation: open the page that is shown, and enter the code.",
        "koordctl.installation.tokens",
        "login",
    ),
    Entry("logout", RUN, "Forget the token of the last login.", "koordctl.installation.tokens", "logout"),
    Entry(
        "doctor",
        RUN,
        "Examine an installation for problems: services, reports, nightly job, log, streams, clocks, disk, keys.",
        "koordctl.installation.doctor",
        "doctor",
    ),
    Entry(
        "backup",
        RUN,
        "Copy the log while everything runs: facts, explanations, snapshots, desired states of nodes.",
        "koordctl.installation.backup",
        "backup",
    ),
    Entry(
        "restore",
        RUN,
        "Write a backup to servers without streams. Afterwards, start the services.",
        "koordctl.installation.backup",
        "restore",
    ),
    Entry(
        "drill",
        RUN,
        "Prove that a backup can be restored: compare its hashes, restore it, and fold its log again.",
        "koordctl.installation.backup",
        "drill",
    ),
    Entry(
        "nightly",
        RUN,
        "Each night: compare the servers' copies of the log, back it up, restore the backup for a test, archive,"
        " verify.",
        "koordctl.installation.nightly",
        "nightly",
    ),
    Entry("scheduler", ASK, "Check a scheduler's configuration before it runs.", "koordctl.scheduler"),
    Entry(
        "descheduler",
        ASK,
        "Check a descheduler's configuration, or convert a policy into one.",
        "koordctl.descheduling.configuration",
    ),
    Entry("man", RUN, "Write the man pages of all commands.", "koordctl.manual", "man"),
    Entry("events", LOG, "Show facts of the log, and follow it.", "koordctl.log.events", "events"),
    Entry(
        "replay",
        LOG,
        "Rebuild the state from the log alone, up to a position or time, and compare it with the projector's rows.",
        "koordctl.replay.command",
        "replay",
    ),
    Entry(
        "verify",
        LOG,
        "Check that the services and a state rebuilt from the log are equal. Works under load.",
        "koordctl.replay.verify",
        "verify",
    ),
    Entry("bus", LOG, "The log itself: streams, lag of the services, parked work, skips.", "koordctl.log.bus"),
)
"""In the order of the help."""

explain = typer.Typer(cls=lazy_group(EXPLAIN), help=EXPLAIN_HELP, no_args_is_help=True)

app = typer.Typer(
    name="koord",
    cls=lazy_group(COMMANDS, translated=partial(our_words, explained={entry.name for entry in EXPLAIN})),
    help=(
        "QoS-aware colocation as an event-sourced system: run it, query it, replay it.\n\n"
        "A position is the number of an event in the log (`koord events` shows it). `--as-of`, `--to`, `--from` and "
        "`--since` accept a position, a time (UTC if it names no zone), or a duration before now such as 5m.\n\n"
        "Commands use the stack that runs in `./var` or `KOORD_VAR`. For a remote stack, set `KOORD_MANAGER`, "
        "`KOORD_PROJECTOR`, `KOORD_SCHEDULER`, `KOORD_DESCHEDULER` (http://host:port; several, separated by commas: "
        "the leader is used) and `KOORD_NATS` (nats:// or tls://host:port, with the files `KOORD_NATS_SEED` and "
        "`KOORD_NATS_CA`). The token is "
        "`KOORD_TOKEN`, or in the file `KOORD_TOKEN_FILE`, or that of `koord login`; `KOORD_CA` is the authority of "
        "https addresses.\n\n"
        "Exit status: 0 done; 1 refused, failed, different or not found, including a position beyond the end of the "
        "log; 2 wrong usage, or a file that cannot be read; 130 interrupted."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Accept the options that stand before the name of the command."""
