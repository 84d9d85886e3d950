"""Keys in reserve for installations with an issuer, so that a rotation needs a reload only.

The server passes every client to the issuer whose key is not in the list `auth_users`, and refuses to reload another
list. So the list has the keys that users will get by later rotations, too. The list grows only. A key in the list that
no user has is refused.

    authority/spare-scheduler-0.seed     the key that the scheduler gets by the next rotation
    authority/exempt.json                the list
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from koordcore.embedded.keys import ensure_user_key
from koordcore.embedded.nats_config import NatsUser

SPARES: Final = 3
"""Rotations of a user that need a reload only. The one after them needs a restart of the servers."""
LIST: Final = "exempt.json"


def take_spare(authority: Path, user: str, seed_file: Path) -> None:
    """Move the first key that is held in reserve for a user to the place of the user's own key.

    No-op if the user has a key already, or if there is none in reserve.

    Args:
        authority: Folder of the keys in reserve, `spare-<user>-<number>.seed`. The file is taken out of it.
        user: Name of the NATS user.
        seed_file: File of the user's key, the target. Its folder is made if it is missing.
    """
    spares = _spares(authority, user)
    if spares and not seed_file.exists():
        seed_file.parent.mkdir(parents=True, exist_ok=True)
        spares[0].replace(seed_file)


def exempt_keys(authority: Path, users: Sequence[NatsUser]) -> tuple[tuple[str, ...], bool]:
    """Bring the list `auth_users` up to date, store it, and return it.

    If the key of a user is not in the list, this key and three keys in reserve for the user are added. No key is ever
    removed.

    Args:
        authority: Folder of the keys in reserve and of the stored list. Missing keys in reserve are made.
        users: All users with their present keys.

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
