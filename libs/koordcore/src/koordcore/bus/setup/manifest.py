"""What each service reads and writes. Its permissions are generated from this.

`principals` turns them into allow lists of the server.

Source:
    event-bus spec, 2.1 (writers), 10 (table)
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceManifest:
    """One principal.

    Attributes:
        appends: Aggregate kinds whose facts it decides (read back at the leader).
        reports: (class, kind) of lossy streams that it publishes: ("obs", "node"), ("explanations", "pod").
        follows: Streams that it folds or lists: "ev", "obs", "explanations", "adv", "dlq", "cmd".
        commands: Services that it may ask to act; "*": all.
        answers: Answers requests (`koordcore.requests`).
        asks: Services whose endpoints it may ask; "*": all.
        works_on: Streams of which it runs durable workers ("cmd", "ev").
        desired: "", "read" or "write": the KV bucket of desired node states.
        snapshots: Keeps snapshots of its folds.
        checkpoints: Reads the snapshots that others keep.
        leads: Takes part in leadership by the KV bucket.
        sees_leaders: Reads there who leads.
        parks: May park, retry and drop work items.
        agent_nodes: Subject token of the agent's node; "*": a process with many simulated nodes; "": no agent.
        streams: "", "purge" (the retention job) or "create" (the bootstrap job).
    """

    name: str
    appends: tuple[str, ...] = ()
    reports: tuple[tuple[str, str], ...] = ()
    follows: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    answers: bool = False
    asks: tuple[str, ...] = ()
    works_on: tuple[str, ...] = ()
    desired: str = ""
    snapshots: bool = False
    checkpoints: bool = False
    leads: bool = False
    sees_leaders: bool = False
    parks: bool = False
    agent_nodes: str = ""
    streams: str = ""


MANAGER = ServiceManifest(
    name="manager",
    appends=(
        "podspec",
        "nodespec",
        "namespace",
        "priorityclass",
        "workloadspec",
        "quotaspec",
        "gangspec",
        "reservationspec",
        "config",
        "customspec",
        "nodepolicy",
        "controller",
        "quotaprofile",
        "recommendation",
        "eviction",
        "drift",
    ),
    reports=(("explanations", "admission"), ("obs", "node")),
    follows=("ev", "obs", "explanations"),
    commands=("*",),
    desired="write",
    snapshots=True,
    leads=True,
)

SCHEDULER = ServiceManifest(
    name="scheduler",
    appends=("pod", "node", "reservation", "gang", "quota", "scheduleexplanation", "clustertopology", "eviction"),
    reports=(("explanations", "*"),),
    follows=("ev", "obs"),
    snapshots=True,
    leads=True,
)

DESCHEDULER = ServiceManifest(
    name="descheduler",
    appends=("migration", "eviction"),
    reports=(("explanations", "migration"),),
    follows=("ev", "obs"),
    works_on=("cmd",),
    snapshots=True,
    leads=True,
    parks=True,
)

PROJECTOR = ServiceManifest(
    name="projector", follows=("ev", "obs", "explanations", "adv"), answers=True, snapshots=True
)

AUDITOR = ServiceManifest(name="auditor", follows=("ev", "explanations"))

OPERATOR = ServiceManifest(
    name="operator",
    appends=("fold",),
    follows=("ev", "obs", "explanations", "adv", "dlq"),
    desired="read",
    commands=("*",),
    asks=("*",),
    checkpoints=True,
    sees_leaders=True,
    parks=True,
)
"""The `koord` command of an administrator: looks at everything, records skips, handles parked items."""

GENESIS = ServiceManifest(
    name="genesis",
    appends=(
        "podspec",
        "nodespec",
        "namespace",
        "priorityclass",
        "config",
        "customspec",
        "pod",
        "node",
        "genesis",
    ),
    follows=("ev",),
)
"""`koord bus genesis`: begins a fresh log with what the API server has."""

RETENTION = ServiceManifest(name="retention", follows=("ev",), snapshots=True, streams="purge")

BOOTSTRAP = ServiceManifest(name="bootstrap", streams="create")


def agent(node: str = "*", *, name: str = "agent") -> ServiceManifest:
    """Return the agent of one node (its subject token), or of many simulated nodes (`*`)."""
    return ServiceManifest(name=name, desired="read", agent_nodes=node)


EMBEDDED: tuple[ServiceManifest, ...] = (
    BOOTSTRAP,
    MANAGER,
    SCHEDULER,
    agent(),
    PROJECTOR,
    OPERATOR,
    GENESIS,
    AUDITOR,
)
"""The principals of an embedded stack: its agent process holds all simulated nodes and this host."""
