"""Write the files of a NATS installation outside of the embedded stack: keys, certificates, server configuration.

Each principal gets a folder of its own, so that a service can be given its own key and no other:

    nats/nats-0.conf, tls.crt, tls.key, ca.crt    for the servers
    authority/ca.crt, ca.key                      to renew certificates; keep it offline
    authority/spare-scheduler-0.seed              the key that the scheduler gets by the next rotation
    authority/exempt.json                         the keys that the server does not pass to the issuer
    mirror/nats-mirror.conf, tls.crt, tls.key     for a second server with a mirror of the log
    scheduler/nats.seed, ca.crt                   for one service
    scheduler/tls.crt, tls.key                    for its HTTP server; also in postgres/ for the database
    jaeger/tls.crt, tls.key, ca.crt               for a server that is not ours

The server passes every client to the issuer whose key is not in the list `auth_users`, and refuses to reload another
list. So the list has the keys that users will get by later rotations, too, and a rotation needs a reload only. The list
grows only. A key in the list that no user has is refused.

`koord keys` is the command for it. Next module to read: `principals`.

Source: event-bus spec, 9.2, 10.
"""

import datetime
import json
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from koordcore.bus.names import BusNames
from koordcore.bus.setup.issuing import NodeTokens
from koordcore.bus.setup.manifest import INSTALLED, ISSUER, MIRROR, ServiceManifest, agent, agent_name, criproxy
from koordcore.bus.setup.moving import users_of_running
from koordcore.bus.setup.principals import MAIN_DOMAIN, shares
from koordcore.bus.setup.streams import StreamSizes
from koordcore.bus.setup.tls_files import LOOPBACK_HOSTS, TlsFiles, ensure_server_certificate, ensure_tls_files
from koordcore.embedded.nats_config import (
    AuthCallout,
    LeafRemote,
    NatsClusterMembership,
    NatsServerConfig,
    NatsTls,
    NatsUser,
    ensure_user_key,
    render,
)
from koordcore.events.envelope import name_from_token, name_token

SPARES: Final = 3  # Rotations of a user that need a reload only. The one after them needs a restart of the servers.
LIST: Final = "exempt.json"


def take_spare(authority: Path, user: str, seed_file: Path) -> None:
    """Move the first key that is held in reserve for a user to the place of the user's own key. No-op if the user has a
    key already, or if there is none in reserve. `authority`: folder of the keys in reserve,
    `spare-<user>-<number>.seed`. The file is taken out of it. `seed_file`: file of the user's key, the target. Its
    folder is made if it is missing.
    """
    spares = _spares(authority, user)
    if spares and not seed_file.exists():
        seed_file.parent.mkdir(parents=True, exist_ok=True)
        spares[0].replace(seed_file)


def exempt_keys(authority: Path, users: Sequence[NatsUser]) -> tuple[tuple[str, ...], bool]:
    """Bring the list `auth_users` up to date, store it, and return it. If the key of a user is not in the list, this
    key and three keys in reserve for the user are added. No key is ever removed. `authority`: folder of the keys in
    reserve and of the stored list. Missing keys in reserve are made. `users`: all users with their present keys.

    Returns:
        The public keys, and whether the list has grown, so that the servers must be restarted.
    """
    file = authority / LIST
    before: list[str] = json.loads(file.read_text()) if file.exists() else []
    keys = list(before)
    for user in users:
        if user.public_key in keys:
            continue
        spares = [authority / f"spare-{user.name}-{number}.seed" for number in range(SPARES)]
        keys += [user.public_key, *(ensure_user_key(spare).public_key for spare in spares)]
    if keys != before:
        file.write_text(json.dumps(keys, indent=2) + "\n")
    return tuple(keys), keys != before


def _spares(authority: Path, user: str) -> list[Path]:
    names = [authority / f"spare-{user}-{number}.seed" for number in range(SPARES)]
    return [name for name in names if name.exists()]


SERVERS: Final = "nats"
AUTHORITY: Final = "authority"
POSTGRES: Final = "postgres"
# Folder of the access file of the services' HTTP servers (`koordcore.service.access.static_tokens`).
ACCESS: Final = "access"
# Users with an HTTP server, each with a certificate for `koord-<user>`, `<user>` and loopback names. That of the
# auditor serves the results of `koord nightly`.
SERVING: Final = ("manager", "scheduler", "descheduler", "projector", "agent", "criproxy", "auditor")
SEED: Final = "nats.seed"
# File in the folder of the issuer: the key that signs the credentials of agents. It could make any user.
ACCOUNT_SEED: Final = "account.seed"
CA: Final = "ca.crt"
CLIENT_PORT: Final = 4222
MONITOR_PORT: Final = 8222
ROUTE_PORT: Final = 6222
LEAF_PORT: Final = 7422


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An installation of NATS servers: their addresses, the folders of their files, and the users that they know."""

    cluster: str  # Id of the Kubernetes cluster
    directory: Path  # Folder in which the files are written
    # DNS names and IP addresses under which clients reach the servers.
    hosts: tuple[str, ...] = ("nats", "localhost", "127.0.0.1")
    # DNS names of the servers, as they reach each other. Several form one cluster of servers.
    servers: tuple[str, ...] = ("nats",)
    mounted_at: Path = Path("/etc/nats")  # Folder in which a server finds the files of `nats/`
    store: Path = Path("/data")  # Folder in which a server stores its streams
    nodes: tuple[str, ...] = ()  # Names of nodes whose agents and CRI proxies get users of their own
    # Whether two further users, `agent` and `criproxy`, may act for every node. For simulated nodes, and for more nodes
    # than one configuration of the servers can list.
    simulates: bool = False
    # Whether clients without a key are passed to the issuer (`issuing`), which admits agents with tokens that expire.
    issues: bool = False
    postgres: str = ""  # `host:port` of the projector's database, which gets a password and a certificate; "" for none
    serving: tuple[str, ...] = ()  # Further names of HTTP servers in their certificates, each as `user=host`
    # Names of servers that are no users of the log, such as Jaeger. Each one gets a folder with a certificate for its
    # name. Its group can read the key, because such a server has a user of its own.
    certificates: tuple[str, ...] = ()
    mirror: str = ""  # Name under which clients reach a second server, which has a mirror of the log; "" for none
    # Largest size of the stream of facts. The servers offer the space for all streams.
    log_bytes: int = StreamSizes().ev

    @property
    def manifests(self) -> tuple[ServiceManifest, ...]:
        """Manifests of all users: the subjects and streams that each user may read and write."""
        agents = tuple(agent(name_token(node), name=agent_name(node)) for node in self.nodes)
        proxies = tuple(criproxy(name_token(node), name=f"criproxy-{name_token(node)}") for node in self.nodes)
        every_node = (agent(), criproxy()) if self.simulates else ()
        return (
            *INSTALLED,
            *agents,
            *proxies,
            *every_node,
            *((ISSUER,) if self.issues else ()),
            *((MIRROR,) if self.mirror else ()),
        )

    @property
    def folders(self) -> tuple[str, ...]:
        """Names of the folders below `directory`; the folder of the certificate authority is the first."""
        users = tuple(manifest.name for manifest in self.manifests)
        return (AUTHORITY, SERVERS, ACCESS, *users, *self.certificates, *((POSTGRES,) if self.postgres else ()))

    def serving_hosts(self, manifest: ServiceManifest) -> tuple[str, ...]:
        """Return the host names and addresses in the certificate of a user's HTTP server. Empty if it has no such
        server.
        """
        kind, _, node = manifest.name.partition("-")
        if kind not in SERVING:
            return ()
        named = tuple(host for user, _, host in (each.partition("=") for each in self.serving) if user == kind)
        return (f"koord-{kind}", *((name_from_token(node),) if node else (kind, *named)), *LOOPBACK_HOSTS)


class NextStep(NamedTuple):
    """What has to happen after the files of an installation were written."""

    needs_restart: bool  # Whether the servers must be restarted, one after the other: they refuse to reload this change
    moves_users: bool  # Whether the files must be written and read once more: users are not in their accounts yet


def write_installation(wanted: Installation, now: datetime.datetime) -> NextStep:
    """Write the files of an installation. Existing keys, and certificates that are valid long enough, are kept. The
    servers read a changed configuration after a reload (`nats-server --signal reload`); no restart is needed. A user
    whose folder was deleted, and who is not wanted any more, is unknown to them from then on. `now`: the time in UTC.

    Raises:
        NotRestartableError: A key file does not contain a valid seed.
    """
    names = BusNames(wanted.cluster)
    authority, servers = wanted.directory / AUTHORITY, wanted.directory / SERVERS
    tls = ensure_tls_files(authority, now=now, hosts=tuple(dict.fromkeys((*wanted.hosts, *wanted.servers))))
    if wanted.issues:
        for manifest in wanted.manifests:
            take_spare(authority, manifest.name, wanted.directory / manifest.name / SEED)
    seeds = [(manifest, wanted.directory / manifest.name / SEED) for manifest in wanted.manifests]
    users, moves_users = users_of_running(servers / "nats-0.conf", seeds, names)
    callout, needs_restart = None, False
    if wanted.issues:
        issuer = ensure_user_key(wanted.directory / ISSUER.name / ACCOUNT_SEED, is_account=True)
        exempt, needs_restart = exempt_keys(authority, users)
        callout = AuthCallout(issuer=issuer.public_key, exempt=exempt)
        NodeTokens(wanted.directory / ISSUER.name, wanted.cluster)  # makes its key
    for name in (SERVERS, *wanted.certificates, *(manifest.name for manifest in wanted.manifests)):
        _copy(tls.ca, wanted.directory / name / CA)
    _copy(tls.server_certificate, servers / "tls.crt")
    _copy(tls.server_key, servers / "tls.key")
    mounted = wanted.mounted_at
    common = NatsServerConfig(
        host="0.0.0.0",  # noqa: S104  # a server for other machines; every client needs a key
        directory=wanted.store,
        port=CLIENT_PORT,
        monitor_port=MONITOR_PORT,
        max_file_store_bytes=StreamSizes(ev=wanted.log_bytes).file_store(),
        users=users,
        shares=shares(names),
        callout=callout,
        tls=NatsTls(certificate=mounted / "tls.crt", key=mounted / "tls.key", ca=mounted / CA),
    )
    main = replace(common, domain=MAIN_DOMAIN, leaf_port=LEAF_PORT) if wanted.mirror else common
    for number, _ in enumerate(wanted.servers):
        config = replace(main, name=f"nats-{number}", cluster=_membership(wanted.servers))
        file = servers / f"{config.name}.conf"
        if file.exists():
            before = file.read_text()
            # A server reads its domain at its start only, and before nats-server 2.15 its limits, too.
            needs_restart |= bool(wanted.mirror) != (f'"{MAIN_DOMAIN}"' in before) or '"max_msgs"' not in before
        file.write_text(render(config))
    if wanted.mirror:
        _write_mirror(wanted, common, tls, now)
    for manifest in wanted.manifests:
        if hosts := wanted.serving_hosts(manifest):
            folder = wanted.directory / manifest.name
            ensure_server_certificate(tls, folder, hosts[0], now=now, hosts=hosts)
    for name in wanted.certificates:
        hosts = (name, *LOOPBACK_HOSTS)
        ensure_server_certificate(tls, wanted.directory / name, name, now=now, hosts=hosts, key_mode=0o640)
    if wanted.postgres:
        _ensure_database_files(wanted.directory, wanted.postgres, tls, now)
    return NextStep(needs_restart, moves_users)


def _write_mirror(wanted: Installation, common: NatsServerConfig, tls: TlsFiles, now: datetime.datetime) -> None:
    """Write what the second server needs into the folder of the user as which it connects to the first ones."""
    folder = wanted.directory / MIRROR.name
    ensure_server_certificate(tls, folder, wanted.mirror, now=now, hosts=(wanted.mirror, *LOOPBACK_HOSTS))
    urls = tuple(f"tls://{server}:{LEAF_PORT}" for server in wanted.servers)
    remote = LeafRemote(urls=urls, seed=(folder / SEED).read_text().strip())
    file = folder / "nats-mirror.conf"
    file.touch(mode=0o600)
    file.write_text(render(replace(common, name="nats-mirror", domain=MIRROR.name, remote=remote)))


def _ensure_database_files(directory: Path, address: str, tls: TlsFiles, now: datetime.datetime) -> None:
    """Create what is missing for the database: its certificate, and a password for the server and in libpq's form."""
    hosts = (address.rpartition(":")[0], *LOOPBACK_HOSTS)
    ensure_server_certificate(tls, directory / POSTGRES, POSTGRES, now=now, hosts=hosts)
    file = directory / POSTGRES / "password"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(24))
    passfile = directory / "projector" / "pgpass"
    passfile.touch(mode=0o600)
    passfile.write_text(f"{address}:*:koord:{file.read_text()}\n")


def _membership(servers: Sequence[str]) -> NatsClusterMembership | None:
    if len(servers) == 1:
        return None
    routes = tuple(f"{server}:{ROUTE_PORT}" for server in servers)
    return NatsClusterMembership(name="koord", port=ROUTE_PORT, routes=routes)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_bytes() != source.read_bytes():
        target.unlink(missing_ok=True)
        shutil.copy(source, target)
