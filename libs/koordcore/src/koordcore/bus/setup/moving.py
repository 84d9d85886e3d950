"""Move users of a running installation into accounts of their own, in two reloads of the servers.

    first configuration    the accounts exist; users without an account of their own so far stay, and keep old rights
    second configuration   the users are in their accounts

In one reload, nats-server makes a new account, but not the subscriptions of its imports: its users would reach nothing
until the next reload. Between the two, services of both releases work, so it is the time to upgrade them.

Source: decision 0043.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from koordcore.bus.names import BusNames
from koordcore.bus.setup.manifest import ServiceManifest
from koordcore.bus.setup.principals import nats_user
from koordcore.embedded.nats_config import ACCOUNT, NatsUser, UserPermissions


def users_of_running(
    running: Path, manifests: Iterable[tuple[ServiceManifest, Path]], names: BusNames
) -> tuple[tuple[NatsUser, ...], bool]:
    """Return the users for the next configuration of servers that may run already.

    Args:
        running: Configuration file of a server; it may be missing.
        manifests: Rights of each user, and the path of its key file. A missing key file is created.

    Returns:
        The users, and whether another configuration has to follow that moves some of them.

    Raises:
        NotRestartableError: A key file does not contain a valid seed.
    """
    accounts = _accounts_in(running)
    users: list[NatsUser] = []
    moves_later = False
    for manifest, seed in manifests:
        if accounts is None or manifest.account in accounts:
            users.append(nats_user(manifest, names, seed))
            continue
        moves_later = True
        stays = nats_user(replace(manifest, account=ACCOUNT), names, seed)
        users.append(replace(stays, permissions=_both(stays.permissions, _rights_in(accounts, stays.public_key))))
    return tuple(users), moves_later


def _accounts_in(running: Path) -> dict[str, Any] | None:
    """Return the accounts in the configuration file of a server; None if it does not exist or has no accounts."""
    if not running.exists():
        return None
    return cast("dict[str, Any]", json.loads(running.read_text())).get("accounts")


def _rights_in(accounts: dict[str, Any], public_key: str) -> dict[str, Any]:
    """Return the permissions of the user with this key, as JSON; empty if there is no such user."""
    users: list[dict[str, Any]] = [user for account in accounts.values() for user in account.get("users", [])]
    found: list[dict[str, Any]] = [user["permissions"] for user in users if user["nkey"] == public_key]
    return found[0] if found else {}


def _both(rights: UserPermissions, before: dict[str, Any]) -> UserPermissions:
    def merged(allowed: tuple[str, ...], key: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*allowed, *before.get(key, {}).get("allow", ()))))

    return replace(
        rights,
        publish_allow=merged(rights.publish_allow, "publish"),
        subscribe_allow=merged(rights.subscribe_allow, "subscribe"),
    )
