# pyright: reportUnknownMemberType=false
# nkeys has no annotations for its functions.
"""NKEYs of NATS users: the server knows the public part, a service's seed file holds the secret.

The public parts go into `nats_config.NatsUser`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import nkeys


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKey:
    """One user's key.

    Attributes:
        public_key: `U...`, for the server's configuration.
        seed_file: File with the seed `SU...`, mode 0600, for `nats.connect(nkeys_seed=...)`.
    """

    public_key: str
    seed_file: Path


def ensure_user_key(seed_file: Path) -> UserKey:
    """Return the key in this file; a new random one is written there when the file does not exist.

    Raises:
        nkeys.NkeysError: The file holds no seed.
    """
    if not seed_file.exists():
        seed_file.parent.mkdir(parents=True, exist_ok=True)
        seed_file.touch(mode=0o600, exist_ok=False)
        seed_file.write_bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    pair = nkeys.from_seed(bytearray(seed_file.read_bytes().strip()))
    return UserKey(public_key=bytes(pair.public_key).decode(), seed_file=seed_file)
