"""Subjects and streams that each service may read and write. `principals` generates permissions from it.

Source: event-bus spec, 2.1 (writers), 10 (table).
"""

from dataclasses import dataclass

from koordcore.embedded.nats_config import ACCOUNT, AGENTS, CRIPROXIES
from koordcore.events.envelope import WRITTEN_BY_NODES, name_token


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceManifest:
    """The rights of one NATS user (a service) on the server. `permissions` turns them into lists of subjects."""

    name: str  # Name of the user
    # Account of the user on the server. In an account of its own, a user reaches only what `principals` imports.
    account: str = ACCOUNT
    appends: tuple[str, ...] = ()  # Aggregate kinds whose facts the user may append, and read at the stream's leader
    # Kinds of aggregates whose facts nodes send to this service, which appends them (`koordcore.bus.work.node_facts`).
    takes_in: tuple[str, ...] = ()
    # (class, kind) of observations and explanations that it may publish, for example ("obs", "node").
    reports: tuple[tuple[str, str], ...] = ()
    audits: str = ""  # Writer (`koordcore.bus.names.AUDIT_WRITERS`) as which it stores audit records; "" for none
    # Streams that it may read in order: "ev", "obs", "explanations", "audit", "adv", "dlq", "cmd".
    follows: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()  # Services to whose work queues it may add requests; "*": all
    answers: bool = False  # Whether the user may answer requests (`koordcore.requests`)
    asks: tuple[str, ...] = ()  # Services whose endpoints it may call; "*": all
    works_on: tuple[str, ...] = ()  # Streams on which it may run durable workers ("cmd", "ev")
    desired: str = ""  # Access to the KV bucket with the desired states of nodes: "", "read" or "write"
    snapshots: bool = False  # Whether it may save snapshots of its folds (`koordcore.bus.names.SAVED_FOLDS`)
    checkpoints: bool = False  # Whether it may read the snapshots of other services
    leads: bool = False  # Whether it may take part in leader election by the KV bucket
    sees_leaders: bool = False  # Whether it may read which instances lead
    inspects: bool = False  # Whether it may read size, settings and replicas of every stream
    parks: bool = False  # Whether it may store, retry and delete dead letters
    # Subject token of the agent's node; "*" for a process with many simulated nodes; "" if it is not an agent.
    agent_nodes: str = ""
    # Subject token of the node for whose CRI proxy it appends facts; "*" for every node; "" for none.
    proxy_nodes: str = ""
    issues: bool = False  # Whether it decides about clients without a key (`koordcore.bus.setup.issuing`)
    mirrors: bool = False  # Whether a server of another domain may copy the stream of facts as this user
    # Right to copy or change streams: "", "copy" (backups), "purge" (the retention job) or "create" (the bootstrap job,
    # which also restores backups).
    streams: str = ""


MANAGER = ServiceManifest(
    name="manager",
    account="MANAGER",
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
    takes_in=tuple(sorted(WRITTEN_BY_NODES)),
    reports=(("explanations", "admission"), ("explanations", "node"), ("obs", "node")),
    audits="manager",
    follows=("ev", "obs", "explanations"),
    commands=("*",),
    answers=True,
    desired="write",
    snapshots=True,
    leads=True,
)

SCHEDULER = ServiceManifest(
    name="scheduler",
    account="SCHEDULER",
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
    audits="scheduler",
    follows=("ev", "obs"),
    answers=True,
    snapshots=True,
    leads=True,
)

DESCHEDULER = ServiceManifest(
    name="descheduler",
    account="DESCHEDULER",
    appends=("descheduling", "migration", "drain", "draingroup", "eviction", "repack", "descheduler"),
    reports=(
        ("explanations", "migration"),
        ("explanations", "drain"),
        ("explanations", "refusal"),
        ("explanations", "round"),
    ),
    audits="descheduler",
    follows=("ev", "obs"),
    works_on=("cmd",),
    answers=True,
    asks=("scheduler", "manager"),
    snapshots=True,
    leads=True,
    parks=True,
)

PROJECTOR = ServiceManifest(
    name="projector",
    account="PROJECTOR",
    audits="projector",
    follows=("ev", "obs", "explanations", "adv"),
    answers=True,
)

AUDITOR = ServiceManifest(name="auditor", account="AUDITOR", follows=("ev", "explanations", "audit"))

# The `koord` command of an administrator: reads everything, records skips, handles parked items.
OPERATOR = ServiceManifest(
    name="operator",
    account="OPERATOR",
    appends=("fold",),
    audits="koord",
    follows=("ev", "obs", "explanations", "audit", "adv", "dlq"),
    desired="read",
    commands=("*",),
    asks=("*",),
    checkpoints=True,
    sees_leaders=True,
    inspects=True,
    parks=True,
)

# `koord bus genesis`: begins a new log with the objects of the API server.
GENESIS = ServiceManifest(
    name="genesis",
    account="GENESIS",
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

RETENTION = ServiceManifest(name="retention", account="RETENTION", follows=("ev",), checkpoints=True, streams="purge")

# Creates the streams and restores backups. It may delete messages that a stream does not protect. It reads the restored
# facts to find the moment of `--to` and facts that the backup lacks.
BOOTSTRAP = ServiceManifest(name="bootstrap", appends=("log",), follows=("ev",), snapshots=True, streams="create")

# `koord keys issue`: decides which agent a client without a key is, and reads and writes nothing.
ISSUER = ServiceManifest(name="issuer", answers=True, issues=True)

# The server of a mirror (`koordcore.bus.setup.mirror`): reads facts. It names the subject to which they are sent, so
# its key is as powerful as that of the bootstrap job.
MIRROR = ServiceManifest(name="mirror", mirrors=True)

# `koord backup`: reads whole streams, and each fact to find lost ones. The server writes a copy on the subject that a
# request names, so its key is as powerful as that of the bootstrap job.
BACKUP = ServiceManifest(name="backup", follows=("ev",), streams="copy")


def agent_name(node: str) -> str:
    """Return the name of the NATS user of a node's agent. Its inbox has this name."""
    return f"agent-{name_token(node)}"


def agent(node: str = "*", *, name: str = "agent", for_proxy: bool = False) -> ServiceManifest:
    """Return the manifest of a node agent. `node`: subject token of its node; "*" for a process with many simulated
    nodes. `for_proxy`: whether it appends the facts of its node's CRI proxy, which has no user of its own.
    """
    return ServiceManifest(
        name=name, account=AGENTS, desired="read", agent_nodes=node, proxy_nodes=node if for_proxy else ""
    )


def criproxy(node: str = "*", *, name: str = "criproxy") -> ServiceManifest:
    """Return the manifest of a CRI proxy. `node`: subject token of its node; "*" for every node."""
    return ServiceManifest(name=name, account=CRIPROXIES, proxy_nodes=node)


# The principals of an embedded stack. Its agent process has all simulated nodes and this host.
EMBEDDED: tuple[ServiceManifest, ...] = (
    BOOTSTRAP,
    MANAGER,
    SCHEDULER,
    DESCHEDULER,
    agent(),
    criproxy(),
    PROJECTOR,
    OPERATOR,
    GENESIS,
    AUDITOR,
    BACKUP,
    RETENTION,
)

# The principals of an installation on compose or Kubernetes, without the agents: each node's agent is one more.
INSTALLED: tuple[ServiceManifest, ...] = (
    BOOTSTRAP,
    MANAGER,
    SCHEDULER,
    DESCHEDULER,
    PROJECTOR,
    OPERATOR,
    GENESIS,
    AUDITOR,
    BACKUP,
    RETENTION,
)

# One manifest of each kind of user, agents and CRI proxies with the rights for every node. Accounts are made from it.
EVERY_KIND: tuple[ServiceManifest, ...] = (*INSTALLED, agent(for_proxy=True), criproxy(), ISSUER, MIRROR)
