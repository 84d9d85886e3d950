"""Subjects and streams that each service may read and write. `principals` generates permissions from it.

Source:
    event-bus spec, 2.1 (writers), 10 (table)
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceManifest:
    """Rights of one principal.

    Attributes:
        appends: Aggregate kinds whose facts it appends. It may also read them at the leader.
        reports: (class, kind) of observations and explanations that it publishes: ("obs", "node"), ("explanations",
            "pod").
        follows: Streams that it follows or lists: "ev", "obs", "explanations", "adv", "dlq", "cmd".
        commands: Services whose work queues it may add requests to; "*": all.
        answers: Whether it answers requests (`koordcore.requests`).
        asks: Services whose endpoints it may call; "*": all.
        works_on: Streams on which it runs durable workers ("cmd", "ev").
        desired: Access to the KV bucket with desired states: "", "read" or "write".
        snapshots: Whether it saves snapshots of its folds.
        checkpoints: Whether it reads the snapshots of other services.
        leads: Whether it takes part in leader election by the KV bucket.
        sees_leaders: Whether it may read who leads.
        parks: Whether it may park, retry and drop work items.
        agent_nodes: Subject token of the agent's node; "*" for a process with many simulated nodes; "" if it is no
            agent.
        streams: Right to change streams: "", "purge" (the retention job) or "create" (the bootstrap job).
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
    appends=(
        "pod",
        "node",
        "reservation",
        "gang",
        "quota",
        "scheduleexplanation",
        "clustertopology",
        "gpuworkload",
        "eviction",
    ),
    reports=(("explanations", "*"),),
    follows=("ev", "obs"),
    answers=True,
    snapshots=True,
    leads=True,
)

DESCHEDULER = ServiceManifest(
    name="descheduler",
    appends=("migration", "eviction"),
    reports=(("explanations", "migration"),),
    follows=("ev", "obs"),
    works_on=("cmd",),
    asks=("scheduler",),
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
"""The `koord` command of an administrator: reads everything, records skips, handles parked items."""

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
"""`koord bus genesis`: begins a new log with the objects of the API server."""

RETENTION = ServiceManifest(name="retention", follows=("ev",), snapshots=True, streams="purge")

BOOTSTRAP = ServiceManifest(name="bootstrap", streams="create")


def agent(node: str = "*", *, name: str = "agent") -> ServiceManifest:
    """Return the manifest of the agent of one node (its subject token), or of many simulated nodes (`*`)."""
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
"""The principals of an embedded stack. Its agent process has all simulated nodes and this host."""
