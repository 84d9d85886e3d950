# pyright: reportUnknownMemberType=false
# nkeys has no annotations for its functions.
"""NKEY pairs of NATS users: the server knows the public key, the seed file of a service holds the secret.

`nats_config.NatsUser` takes the public key.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import nkeys


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKey:
    """The NKEY pair of one user.

    Attributes:
        public_key: Public key, starts with `U`. It goes into the server's configuration.
        seed_file: File with the secret seed, which starts with `SU`. Its mode is 0600.
    """

    public_key: str
    seed_file: Path


def ensure_user_key(seed_file: Path, *, is_account: bool = False) -> UserKey:
    """Return the key pair of a seed file; create the file with a random seed if it does not exist.

    Args:
        seed_file: Path of the file.
        is_account: Whether a new key is that of an account, which signs users (`A...` and `SA...`).

    Raises:
        nkeys.NkeysError: The file does not contain a valid seed.
    """
    if not seed_file.exists():
        seed_file.parent.mkdir(parents=True, exist_ok=True)
        seed_file.touch(mode=0o600, exist_ok=False)
        kind = nkeys.PREFIX_BYTE_ACCOUNT if is_account else nkeys.PREFIX_BYTE_USER
        seed_file.write_bytes(nkeys.encode_seed(os.urandom(32), kind))
    pair = nkeys.from_seed(bytearray(seed_file.read_bytes().strip()))
    return UserKey(public_key=bytes(pair.public_key).decode(), seed_file=seed_file)
