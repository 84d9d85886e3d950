"""The secrets of a connection to the NATS server, from their files: the seed of a key, or a token."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("koordcore.bus")


class Secrets(NamedTuple):
    """The secrets of a connection.

    Attributes:
        seed: Seed `SU...`; None without a key.
        token: Function that reads the token at each connect; None without a token.
    """

    seed: str | None
    token: Callable[[], str] | None


def read_secrets(seed_file: Path | None, token_file: Path | None) -> Secrets:
    """Return the secrets in the files.

    Raises:
        OSError: A file cannot be read, or contains no seed. The message names the setting.
    """
    return Secrets(
        seed=None if seed_file is None else _seed_of(seed_file),
        token=None if token_file is None else _follow("token_file", token_file),
    )


def _seed_of(file: Path) -> str:
    import nkeys  # most commands of `koord` need no key

    seed = _text_of("nkey_seed_file", file)
    try:
        nkeys.from_seed(seed.encode())  # pyright: ignore[reportUnknownMemberType]  untyped argument
    except nkeys.NkeysError as error:
        raise OSError(f"nkey_seed_file: {file}: {error}") from error
    return seed


def _follow(setting: str, file: Path) -> Callable[[], str]:
    _text_of(setting, file)
    return partial(_newest, file)


def _newest(file: Path) -> str:
    """Return the token in a file; "" if it cannot be read: then the server refuses the client, which tries again."""
    try:
        return file.read_text().strip()
    except OSError as error:
        log.warning("bus_token_unreadable file=%s error=%s", file, error)
        return ""


def _text_of(setting: str, file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise OSError(f"{setting}: {error}") from error
