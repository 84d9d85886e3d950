"""Configuration of an embedded nats-server as values, its file, and the NKEY pairs of its users.

`nats` writes the file and runs the server. The file is JSON, which nats-server accepts, so subjects and paths are
escaped by the JSON encoder. The server knows a user's public key, the seed file of a service holds the secret.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from koordcore.embedded.errors import NotRestartableError
from koordcore.embedded.ports import LOOPBACK
from koordcore.ports.eventlog import LARGEST_APPEND
from koordcore.values.nkey_seed import pair_of

GIB = 1024**3
ACCOUNT = "KOORD"  # Name of the account with the streams
AGENTS = "AGENTS"  # Account of the agents on all nodes
CRIPROXIES = "CRIPROXIES"  # Account of the CRI proxies on all nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits:
    """What the users of one account may hold on the servers (decision 0057)."""

    subscriptions: int  # Number of subscriptions of one connection
    connections: int  # Number of connections to all servers together


# An agent holds 3 subscriptions, and up to 7 if it simulates nodes. 5,000 nodes may connect again before the servers
# have noticed that the connections before were lost.
NODE_LIMITS = AccountLimits(subscriptions=16, connections=12_000)
SERVICE_LIMITS = AccountLimits(subscriptions=256, connections=128)
# Longest line of the protocol, and so of a subject. The token of an agent travels in such a line. That of a service
# account has 1 to 2 KiB.
MOST_LINE_BYTES = 4096
AUTH_SECONDS = 2.5  # Time in which a client must prove who it is, with the answer of the issuer


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPermissions:
    """Subjects that a NATS user may publish to and subscribe to, as allow and deny lists. An empty allow list allows
    nothing. A denied subject stays denied even if it is also allowed.
    """

    publish_allow: tuple[str, ...] = ()
    publish_deny: tuple[str, ...] = ()
    subscribe_allow: tuple[str, ...] = ()
    subscribe_deny: tuple[str, ...] = ()
    # Whether the user may publish the answer to a request that it received, on any reply subject.
    allow_responses: bool = False


ALLOW_ALL = UserPermissions(publish_allow=(">",), subscribe_allow=(">",))


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsUser:
    """A user of the NATS server. The public key of its NKEY (`U...`) identifies it; the name is only for people."""

    name: str
    public_key: str
    permissions: UserPermissions = ALLOW_ALL
    account: str = ACCOUNT  # Name of the account of the user


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Share:
    """One subject of an account that the users of another account may use: an export there, and an import here.

    The server sends the answer to a request to the account that asked, whatever reply subject the request names.
    """

    owner: str  # Account whose subject it is
    account: str  # Account that may use it
    subject: str  # Subject in the account of the owner; may contain wildcards
    # Subject in the other account. It differs where the server would answer for the other account itself.
    local: str
    is_stream: bool = False  # Whether messages go to the other account's subscribers, and not to the owner
    has_answers: bool = False  # Whether one request may have several answers


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsTls:
    certificate: Path  # Certificate of the server
    key: Path  # Private key of the certificate
    ca: Path  # Certificates of the authorities that sign clients' certificates
    verify_clients: bool = False  # Whether clients need a certificate that one of these authorities has signed


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsClusterMembership:
    """Addresses of the members of a cluster of NATS servers, for one of them."""

    name: str  # Name of the cluster of servers
    port: int  # Port on which this server accepts connections from other members
    routes: tuple[str, ...]  # `host:port` of these ports of all members, this server included


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRemote:
    """The connection of a server to servers of another domain, as one of their users."""

    urls: tuple[str, ...]  # Addresses of their ports for other domains
    seed: str  # Secret key of the user. It becomes part of the configuration file.


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthCallout:
    """Rule of the server for clients without a key of their own: a service decides who they are (NATS auth callout)."""

    issuer: str  # Public key of the account key (`A...`) that signs the answers of the service
    # Public keys of clients that are never passed to the service. The server refuses to reload another list.
    exempt: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsServerConfig:
    """Configuration of one nats-server with JetStream (event-bus spec, 9.2, 10)."""

    name: str = "koord"
    host: str = LOOPBACK  # Address to listen on
    directory: Path  # Folder with the store (`jetstream/`), the rendered configuration file and the log
    port: int | None = None  # Client port. None: the first start chooses a free port, and later starts use the same.
    monitor_port: int | None = None  # Port of the monitoring endpoint. None: chosen in the same way as `port`.
    max_file_store_bytes: int = 8 * GIB
    max_memory_store_bytes: int = GIB // 4
    sync_interval: str = "always"  # `always`, or a duration such as `10s`. Servers that store facts use `always`.
    max_payload_bytes: int = 1024**2
    max_batch: int = LARGEST_APPEND  # Largest number of messages in one atomic append
    account: str = ACCOUNT  # Name of the account with the streams. The system account has no users.
    users: tuple[NatsUser, ...] = ()  # Users that may connect. Empty: the server does not authenticate (tests).
    shares: tuple[Share, ...] = ()  # What the users of an account may use of another account
    callout: AuthCallout | None = None  # Who decides about clients without a key; None: they are refused
    domain: str = ""  # Name of the JetStream domain; "" for none. Servers of different domains may be connected.
    leaf_port: int | None = None  # Port for servers of other domains; None: closed
    remote: LeafRemote | None = None  # Servers of another domain to which this one connects; None: none
    cluster: NatsClusterMembership | None = None
    tls: NatsTls | None = None
    log_file: Path | None = None
    ready_seconds: float = 60.0


def render(config: NatsServerConfig) -> str:
    """Return the text of the configuration file of one NATS server (JSON).

    Raises:
        AssertionError: The ports have not been chosen yet.
    """
    assert config.port is not None, "the port is chosen before the file is rendered"
    assert config.monitor_port is not None, "the monitoring port is chosen before the file is rendered"
    document: dict[str, object] = {
        "server_name": config.name,
        "listen": f"{config.host}:{config.port}",
        "http": f"{LOOPBACK}:{config.monitor_port}",  # it shows all users: not for other machines
        "max_payload": config.max_payload_bytes,
        "max_control_line": MOST_LINE_BYTES,
        "jetstream": {
            "store_dir": str(config.directory / "jetstream"),
            "max_file_store": config.max_file_store_bytes,
            "max_memory_store": config.max_memory_store_bytes,
            "sync_interval": config.sync_interval,
            "limits": {"batch": {"max_msgs": config.max_batch}},
            **({"domain": config.domain} if config.domain else {}),
        },
    }
    if config.leaf_port is not None:
        assert config.tls is not None, "a port for servers of other domains has TLS"
        document["leafnodes"] = {
            "listen": f"{config.host}:{config.leaf_port}",
            "tls": _tls(config.tls, verify_clients=False),
        }
    if config.remote is not None:
        assert config.tls is not None, "servers of other domains are reached over TLS"
        remote = {"urls": list(config.remote.urls), "nkey": config.remote.seed, "account": config.account}
        document["leafnodes"] = {"remotes": [{**remote, "tls": {"ca_file": str(config.tls.ca)}}]}
    if config.users:
        document["accounts"] = _accounts(config) | {"SYS": {"users": []}}
        document["system_account"] = "SYS"
    if config.callout is not None:
        document["authorization"] = {
            "timeout": AUTH_SECONDS,
            "auth_callout": {
                "issuer": config.callout.issuer,
                "account": config.account,
                "auth_users": list(config.callout.exempt),
            },
        }
    if config.cluster is not None:
        document["cluster"] = {
            "name": config.cluster.name,
            "listen": f"{config.host}:{config.cluster.port}",
            "routes": [f"nats://{route}" for route in config.cluster.routes],
            # A member proves itself to the others, who would otherwise accept anybody as a server.
            **({"tls": _tls(config.tls, verify_clients=True)} if config.tls is not None else {}),
        }
    if config.tls is not None:
        document["tls"] = _tls(config.tls, verify_clients=config.tls.verify_clients)
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _accounts(config: NatsServerConfig) -> dict[str, object]:
    """Return the accounts with their users, exports and imports. Accounts without users exist, too: the issuer of
    credentials may admit users into them.
    """
    named = {config.account, *(user.account for user in config.users)}
    named |= {name for share in config.shares for name in (share.owner, share.account)}
    return {name: _account(name, config) for name in sorted(named)}


def _account(name: str, config: NatsServerConfig) -> dict[str, object]:
    account: dict[str, object] = {"users": [_user(user) for user in config.users if user.account == name]}
    if name == config.account:
        account["jetstream"] = "enabled"
    else:
        # Only limits of accounts: the server refuses to reload other limits of the number of subscriptions.
        limits = NODE_LIMITS if name in (AGENTS, CRIPROXIES) else SERVICE_LIMITS
        account["limits"] = {"max_subscriptions": limits.subscriptions, "max_connections": limits.connections}
    users_of: dict[tuple[bool, bool, str], list[str]] = {}
    for share in sorted(config.shares):
        if share.owner == name:
            users_of.setdefault((share.is_stream, share.has_answers, share.subject), []).append(share.account)
    if users_of:
        account["exports"] = [_export(*key, accounts) for key, accounts in users_of.items()]
    if imported := [_import(share) for share in sorted(config.shares) if share.account == name]:
        account["imports"] = imported
    return account


def _export(is_stream: bool, has_answers: bool, subject: str, accounts: list[str]) -> dict[str, object]:
    if is_stream:
        return {"stream": subject, "accounts": accounts}
    return {"service": subject, "accounts": accounts, **({"response_type": "stream"} if has_answers else {})}


def _import(share: Share) -> dict[str, object]:
    source = {"account": share.owner, "subject": share.subject}
    if share.is_stream:
        return {"stream": source}
    return {"service": source, **({"to": share.local} if share.local != share.subject else {})}


def _tls(tls: NatsTls, *, verify_clients: bool) -> dict[str, object]:
    return {
        "cert_file": str(tls.certificate),
        "key_file": str(tls.key),
        "ca_file": str(tls.ca),
        "verify": verify_clients,
    }


def _user(user: NatsUser) -> dict[str, object]:
    rules = user.permissions
    permissions: dict[str, object] = {
        "publish": _subjects(rules.publish_allow, rules.publish_deny),
        "subscribe": _subjects(rules.subscribe_allow, rules.subscribe_deny),
    }
    if rules.allow_responses:
        permissions["allow_responses"] = True
    return {"nkey": user.public_key, "permissions": permissions}


def _subjects(allow: tuple[str, ...], deny: tuple[str, ...]) -> dict[str, list[str]]:
    """Return an allow list in the server's form. nats-server reads an empty allow list as "everything", so an empty
    list becomes "deny all".
    """
    if not allow:
        return {"deny": [">"]}
    return {"allow": list(allow)} | ({"deny": list(deny)} if deny else {})


# pyright: reportUnknownMemberType=false
# nkeys has no annotations for its functions.


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKey:
    public_key: str  # Public key, starts with `U`. It goes into the server's configuration.
    seed_file: Path  # File with the secret seed, which starts with `SU`. Its mode is 0600.


def ensure_user_key(seed_file: Path, *, is_account: bool = False) -> UserKey:
    """Return the key pair of a seed file; create the file with a random seed if it does not exist. `is_account`:
    Whether a new key is that of an account, which signs users (`A...` and `SA...`).

    Raises:
        NotRestartableError: The file does not contain a valid seed.
    """
    if not seed_file.exists():
        seed_file.parent.mkdir(parents=True, exist_ok=True)
        seed_file.touch(mode=0o600, exist_ok=False)
        import nkeys  # agents import this module, and most of them have a token instead of a key

        kind = nkeys.PREFIX_BYTE_ACCOUNT if is_account else nkeys.PREFIX_BYTE_USER
        seed_file.write_bytes(nkeys.encode_seed(os.urandom(32), kind))
    try:
        pair = pair_of(seed_file.read_bytes().strip())
    except ValueError as error:
        remedy = "put a copy in its place, or delete it for a new key, which its user then needs"
        raise NotRestartableError(f"{seed_file}: must be the seed of an NKEY: {error}; {remedy}") from error
    return UserKey(public_key=bytes(pair.public_key).decode(), seed_file=seed_file)
