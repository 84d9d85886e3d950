"""`koord keys`: keys, certificates and server configuration of an installation outside of the embedded stack."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import msgspec
import typer

from koordctl.access.log import DEFAULT_CLUSTER
from koordctl.installation.probe_files import probe_files_kept
from koordctl.log.mirror import LogSize
from koordctl.render.output import console, fail, write_line

if TYPE_CHECKING:
    from koordcore.bus.setup.installation import Installation

app = typer.Typer(no_args_is_help=True, help="Keys, certificates and NATS configuration for compose and Kubernetes.")

RECORD: Final = "installation.json"
RELOAD: Final = "Reload the servers: nats-server --signal reload"
SERVERS_SECRET: Final = "koord-nats"  # noqa: S105  # the name of a Secret
# Time in which every server has read a changed Secret. Then users are moved to accounts that exist on the servers.
SERVERS_SECONDS: Final = 300.0
MOVE: Final = "Then upgrade the services, run this command again, and reload again: users move to accounts of their own"
RESTART: Final = "Restart the servers, one after the other: they cannot reload this change"

Folder = Annotated[Path, typer.Argument(help="Folder of the keys.", file_okay=False)]
Hosts = Annotated[
    list[str] | None, typer.Option(help="Name or address under which clients reach the servers; repeatable.")
]
Servers = Annotated[
    list[str] | None, typer.Option(help="Name of each server, as the servers reach each other; repeatable.")
]
Mirror = Annotated[
    str, typer.Option(metavar="HOST", help="Name of a second server, for a mirror of the log: koord bus mirror.")
]
Postgres = Annotated[
    str, typer.Option(help="host:port of Postgres: create its certificate, and a password for the projector.")
]
Serving = Annotated[
    list[str] | None,
    typer.Option(help="user=host: a further name in the certificate of this user's HTTP server; repeatable."),
]

ProbeFolder = Annotated[
    Path | None,
    typer.Option(help="Folder of two files for the probes of a container, touched every 10 s: alive, ready."),
]


@app.command()
def create(
    folder: Folder,
    cluster: Annotated[str, typer.Option(help="Id of the cluster.")] = DEFAULT_CLUSTER,
    host: Hosts = None,
    server: Servers = None,
    node: Annotated[list[str] | None, typer.Option(help="Node whose agent gets a user of its own; repeatable.")] = None,
    simulated: Annotated[
        bool,
        typer.Option("--simulated", "--every-node", help="Add users that may act for every node: agent, criproxy."),
    ] = False,
    issuer: Annotated[
        bool, typer.Option("--issuer", help="Let agents connect with tokens that expire: koord keys issue, token.")
    ] = False,
    postgres: Postgres = "",
    serving: Serving = None,
    certificate: Annotated[
        list[str] | None,
        typer.Option(help="Name of a server that is not ours, such as jaeger: it gets a certificate; repeatable."),
    ] = None,
    mirror: Mirror = "",
    log_size: LogSize = None,
) -> None:
    """Create a key for each service and agent, certificates, and the configuration of the NATS servers.

    Each user gets a folder of its own. Run the command again to add nodes or servers, and every month to renew
    certificates: existing keys are kept.

    Examples:

      koord keys create keys --cluster prod --server nats-0.nats --server nats-1.nats --server nats-2.nats

      koord keys create keys --cluster prod --node worker-1 --node worker-2
    """
    from koordcore.bus.setup.installation import Installation

    known = _recorded(folder) or Installation(cluster=cluster, directory=folder)
    if known.cluster != cluster:
        fail(f"{folder} holds the keys of cluster {known.cluster}, not {cluster}")
    next_step = _write(
        replace(
            known,
            hosts=tuple(host or known.hosts),
            servers=tuple(server or known.servers),
            nodes=tuple(dict.fromkeys((*known.nodes, *(node or ())))),
            simulates=known.simulates or simulated,
            issues=known.issues or issuer,
            postgres=_database(postgres) or known.postgres,
            serving=_serving(serving) or known.serving,
            certificates=_others(certificate, known) or known.certificates,
            mirror=mirror or known.mirror,
            log_bytes=log_size or known.log_bytes,
        )
    )
    console.print(f"{folder}: keys of {sum(1 for _ in folder.glob('*/nats.seed'))} users. {next_step}.")


@app.command()
def rotate(folder: Folder, user: Annotated[str, typer.Argument(help="User whose key is replaced.")]) -> None:
    """Replace the key of a user, and that of its certificate.

    The NATS servers refuse the old key as soon as they have reloaded. The HTTP server of the user reads the new
    certificate by itself.

    Examples:

      koord keys rotate keys scheduler
    """
    known = _installation(folder)
    seed = _seed(folder, user)
    seed.unlink()
    seed.with_name("tls.key").unlink(missing_ok=True)
    console.print(f"{user} has a new key in {seed}. {_write(known)}.")


@app.command()
def revoke(
    folder: Folder, node: Annotated[str, typer.Argument(help="Node whose agent may not connect again.")]
) -> None:
    """Remove the user of a node's agent. The servers refuse its key as soon as they have reloaded.

    If the agent has tokens (`koord keys token`), those that exist now are refused. No reload is needed.

    Examples:

      koord keys revoke keys worker-2
    """
    from koordcore.bus.setup.issuing import NodeTokens
    from koordcore.bus.setup.manifest import ISSUER, agent_name

    known = _installation(folder)
    if known.issues and node not in known.nodes:
        NodeTokens(folder / ISSUER.name, known.cluster).revoke(node, datetime.now(UTC))
        console.print(f"tokens of {node} are refused. A connection that exists ends within an hour.")
        return
    if node not in known.nodes:
        fail(f"{node} is not a node of {folder}; it has: {', '.join(known.nodes) or 'none'}")
    next_step = _write(replace(known, nodes=tuple(each for each in known.nodes if each != node)))
    seed = _seed(folder, agent_name(node))
    for name in ("nats.seed", "ca.crt", "tls.crt", "tls.key"):
        (seed.parent / name).unlink(missing_ok=True)
    seed.parent.rmdir()
    console.print(f"the agent of {node} has no user any more. {next_step}.")


@app.command()
def token(
    folder: Folder,
    node: Annotated[str, typer.Argument(help="Node whose agent gets the token.")],
    hours: Annotated[float, typer.Option(min=0.01, max=24, help="Hours until the token is refused, at most 24.")] = 24,
) -> None:
    """Print a token with which the agent of a node connects to the log (--nats-token-file).

    The agent reads the file again when it connects. Write a new token before the old one expires.

    Examples:

      koord keys token keys worker-2 --hours 12
    """
    from koordcore.bus.setup.issuing import NodeTokens
    from koordcore.bus.setup.manifest import ISSUER

    known = _issuing(folder)
    write_line(NodeTokens(folder / ISSUER.name, known.cluster).issue(node, datetime.now(UTC), timedelta(hours=hours)))


@app.command()
def issue(
    folder: Annotated[Path, typer.Argument(help="The folder `issuer` of the keys.", file_okay=False)],
    nats: Annotated[list[str], typer.Option(envvar="KOORD_NATS", help="URL of a server; repeatable.")],
    cluster: Annotated[str, typer.Option(help="Id of the cluster.")] = DEFAULT_CLUSTER,
    service_account: Annotated[
        str,
        typer.Option(
            help="Check tokens of this service account, namespace/name, instead of those of koord keys token."
        ),
    ] = "",
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the API server; none: the pod's own.")] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    proxy_facts: Annotated[
        bool, typer.Option("--proxy-facts", help="Agents may append the facts of the CRI proxies of their nodes.")
    ] = False,
    probe_files: ProbeFolder = None,
) -> None:
    """Decide which agents with tokens may connect, until Ctrl-C. Run two of them: without one, no agent can connect.

    Its user can neither read nor write the log. With --service-account, the API server checks each token (TokenReview),
    and says on which node the pod with this token runs. The token needs the audience `koordstream-log`.

    Examples:

      koord keys issue keys/issuer --cluster prod --nats tls://nats-0:4222

      koord keys issue /etc/koord --nats tls://nats:4222 --service-account koordinator-nodes/koord-agent --proxy-facts
    """
    from koord_manager.cluster_commands import Unreachable
    from koordcore.bus.client.connection import ConnectRefused, NotConnected

    if not (folder / "account.seed").exists():
        fail(
            f"{folder} has no account.seed: create it with `koord keys create FOLDER --issuer`, and name FOLDER/issuer"
        )
    try:
        asyncio.run(
            _issue(folder, cluster, tuple(nats), service_account, kubeconfig, context, proxy_facts, probe_files)
        )
    except (ConnectRefused, NotConnected) as error:
        fail(f"--nats: {error}")
    except Unreachable as error:
        fail(str(error))


async def _issue(
    folder: Path,
    cluster: str,
    urls: tuple[str, ...],
    service_account: str,
    kubeconfig: Path | None,
    context: str,
    proxy_facts: bool,
    probe_files: Path | None,
) -> None:
    from koord_manager.cluster_commands import reviewed_tokens
    from koordcore.bus.client.connection import ConnectionSettings, TlsClientFiles
    from koordcore.bus.client.opening import connect
    from koordcore.bus.names import BusNames
    from koordcore.bus.setup.installation import ACCOUNT_SEED, SEED
    from koordcore.bus.setup.issuing import Check, CredentialIssuer, NodeToken, NodeTokens
    from koordcore.bus.setup.manifest import ISSUER
    from koordcore.service.clock import SystemClock

    async with AsyncExitStack() as stack:
        check: Check
        if service_account:
            check = await stack.enter_async_context(
                reviewed_tokens(service_account, kubeconfig=kubeconfig, context=context)
            )
        else:
            tokens = NodeTokens(folder, cluster)

            async def check_own(given: str) -> NodeToken:
                return tokens.check(given, datetime.now(UTC))

            check = check_own

        tls = TlsClientFiles(ca=folder / "ca.crt") if urls[0].startswith("tls://") else None
        settings = ConnectionSettings(
            urls=urls, name="koord keys issue", user=ISSUER.name, nkey_seed_file=folder / SEED, tls=tls
        )
        connection = await connect(settings)
        stack.push_async_callback(connection.drain_and_close)
        console.print(f"admitting agents of cluster {cluster}; Ctrl-C ends it")
        seed, names = (folder / ACCOUNT_SEED).read_bytes(), BusNames(cluster)
        issuer = CredentialIssuer(connection, names, seed, check=check, clock=SystemClock(), for_proxies=proxy_facts)
        async with probe_files_kept(probe_files, lambda: connection.client.is_connected):
            await issuer.run()


@app.command()
def store(
    cluster: Annotated[str, typer.Option(help="Id of the cluster.")] = DEFAULT_CLUSTER,
    host: Hosts = None,
    server: Servers = None,
    postgres: Postgres = "",
    serving: Serving = None,
    mirror: Mirror = "",
    log_size: LogSize = None,
    issuer: Annotated[
        bool, typer.Option("--issuer", help="The servers ask `koord keys issue` about clients without a key.")
    ] = False,
    namespace: Annotated[str, typer.Option(help="Namespace of the services.")] = "koordinator-system",
    node_namespace: Annotated[str, typer.Option(help="Namespace of the agents.")] = "koordinator-nodes",
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the API server; none: the pod's own.")] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    every: Annotated[float, typer.Option(min=0, help="Seconds between two looks; 0: look once and end.")] = 0.0,
    probe_files: ProbeFolder = None,
) -> None:
    """Keep the keys of an installation as Secrets of a Kubernetes cluster; existing keys are kept.

    Each user gets a Secret of its own, koord-USER. Certificates are renewed 30 days before they end. The agents and CRI
    proxies of all nodes share one user each. The second server of a mirror mounts the Secret koord-mirror.

    Examples:

      koord keys store --server nats-0.nats --kubeconfig ~/.kube/config
    """
    # Imported here: no other command below `koord keys` needs the gateway.
    from koord_manager.cluster_commands import NotKept, Unreachable
    from koordcore.bus.setup.installation import Installation

    wanted = Installation(cluster=cluster, directory=Path(), simulates=True, issues=issuer, mirror=mirror)
    wanted = replace(
        wanted,
        hosts=tuple(host or wanted.hosts),
        servers=tuple(server or wanted.servers),
        postgres=_database(postgres),
        serving=_serving(serving),
        log_bytes=log_size or wanted.log_bytes,
    )
    try:
        asyncio.run(_store(wanted, kubeconfig, context, namespace, node_namespace, every, probe_files))
    except (NotKept, Unreachable) as error:
        fail(str(error))


async def _store(
    wanted: Installation,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    node_namespace: str,
    every: float,
    probe_files: Path | None,
) -> None:
    from koord_manager.cluster_commands import store_keys

    async def store_once() -> Sequence[str]:
        written = await store_keys(
            wanted, kubeconfig=kubeconfig, context=context, namespace=namespace, node_namespace=node_namespace
        )
        console.print(f"{len(wanted.folders)} Secrets, written: {', '.join(written) or 'none'}")
        return written

    written = await store_once()
    if not every:
        return
    async with probe_files_kept(probe_files, lambda: True):
        while True:
            await asyncio.sleep(min(every, SERVERS_SECONDS) if SERVERS_SECRET in written else every)
            written = await store_once()


def _write(wanted: Installation) -> str:
    """Write the files of an installation, and return what the operator does next."""
    from koordcore.bus.setup.installation import write_installation
    from koordcore.embedded.errors import NotRestartableError
    from koordcore.service.access.static_tokens import ensure_access_files

    wanted.directory.mkdir(parents=True, exist_ok=True)
    try:
        needs_restart, moves_users = write_installation(wanted, datetime.now(UTC))
    except NotRestartableError as error:
        fail(str(error))
    ensure_access_files(wanted.directory)
    record = msgspec.json.format(msgspec.json.encode(wanted, enc_hook=str))
    (wanted.directory / RECORD).write_bytes(record + b"\n")
    step = RESTART if needs_restart else RELOAD
    return f"{step}. {MOVE}" if moves_users else step


def _recorded(folder: Path) -> Installation | None:
    """None if the folder has no keys."""
    from koordcore.bus.setup.installation import Installation

    file = folder / RECORD
    if not file.exists():
        return None
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Installation, dec_hook=lambda kind, value: kind(value))
    except msgspec.DecodeError as error:
        fail(f"{file}: {error}")
    return replace(found, directory=folder)


def _installation(folder: Path) -> Installation:
    return _recorded(folder) or _fail_without(folder)


def _issuing(folder: Path) -> Installation:
    known = _installation(folder)
    if not known.issues:
        fail(f"{folder} has no issuer: create it with `koord keys create {folder} --issuer`")
    return known


def _fail_without(folder: Path) -> NoReturn:
    fail(f"{folder} holds no keys: there is no {RECORD}; create them with `koord keys create {folder}`")


def _seed(folder: Path, user: str) -> Path:
    seed = folder / user / "nats.seed"
    if not seed.exists():
        users = sorted(file.parent.name for file in folder.glob("*/nats.seed"))
        fail(f"{user} is not a user of {folder}; it has: {', '.join(users)}")
    return seed


def _serving(names: list[str] | None) -> tuple[str, ...]:
    """Return valid `user=host` names of HTTP servers."""
    from koordcore.bus.setup.installation import SERVING

    for name in names or ():
        user, _, host = name.partition("=")
        if user not in SERVING or not host:
            fail(f"--serving: must be user=host with one of {', '.join(SERVING)}, not {name!r}")
    return tuple(names or ())


def _others(names: list[str] | None, known: Installation) -> tuple[str, ...]:
    """Return valid names of servers that are no users of the log."""
    taken = set(replace(known, certificates=(), postgres="postgres:5432").folders)
    for name in names or ():
        if name in taken or Path(name).name != name:
            fail(f"--certificate: must be the name of a server that has no folder of another kind, not {name!r}")
    return tuple(names or ())


def _database(address: str) -> str:
    """Return a valid `host:port`, or "" if there is no database."""
    host, _, port = address.rpartition(":")
    if address and (not host or not port.isdigit()):
        fail(f"--postgres: must be host:port, not {address!r}")
    return address
