"""Seeds of NKEYs: the secret keys with which users prove who they are, and their check for damage."""

# pyright: reportUnknownMemberType=false
# nkeys has no annotations for its functions.

import base64
import binascii
from typing import Any


def pair_of(seed: bytes) -> Any:
    """Return the key pair (`nkeys.KeyPair`) of a seed such as `SU...`.

    The library reads a seed with one changed letter as another key: then a server refuses the user, and nobody knows
    why. So the checksum in its last two bytes is compared.

    Raises:
        ValueError: It is no seed, or its checksum is another one.
    """
    import nkeys  # most commands of `koord` need no key

    try:
        raw = base64.b32decode(seed + b"=" * (-len(seed) % 8))
        if nkeys.crc16(raw[:-2]).to_bytes(2, "little") != raw[-2:]:
            raise ValueError("its checksum is wrong: it was changed or cut")
        return nkeys.from_seed(bytearray(seed))
    except (binascii.Error, nkeys.NkeysError) as error:
        raise ValueError(f"it is no seed: {error or type(error).__name__}") from error
