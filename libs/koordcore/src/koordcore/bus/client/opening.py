"""Open the connection to the NATS server: at once for a command, or whenever the server answers for a service.

An error that a person has to mend ends the attempts. The secrets (the seed of a key, or a token) come from files.

Source: event-bus spec, 10, 11.
"""

import asyncio
import contextlib
import logging
import math
import random
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from nats.errors import AuthorizationError
from nats.errors import Error as NatsError

from koordcore.bus.client.connection import (
    BusConnection,
    ConnectionSettings,
    ConnectRefused,
    NotConnected,
    client_context,
)
from koordcore.ending import end_tasks
from koordcore.retry import Backoff
from koordcore.values.nkey_seed import pair_of

_WORDS: Final = ("authorization", "authentication", "permissions")
# Error of the server if the client sent its credentials too late, because the client or its machine is busy.
_TOO_SLOW: Final = "authentication timeout"


def is_refusal(error: Exception) -> bool:
    """Return whether the server refuses the user or has an untrusted certificate, so that a retry would not help."""
    if isinstance(error, (AuthorizationError, ssl.SSLCertVerificationError)):
        return True
    text = str(error).lower()
    return any(word in text for word in _WORDS) and _TOO_SLOW not in text


log = logging.getLogger("koordcore.bus")


class Secrets(NamedTuple):
    seed: str | None  # Seed `SU...`; None without a key
    token: Callable[[], str] | None  # Function that reads the token at each connect; None without a token


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
    seed = _text_of("nkey_seed_file", file)
    try:
        pair_of(seed.encode())
    except ValueError as error:
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


# pyright: reportUnknownMemberType=false
# nats-py's connect and close are only partly annotated.


FIRST_SECONDS: Final = 1.0
# Nominal limits of the delays after which `open_connection` says again that no server answers.
MOST_SECONDS: Final = 30.0


async def connect(settings: ConnectionSettings) -> BusConnection:
    """Connect to the NATS server and return the open connection.

    Raises:
        ConnectRefused: As `open_connection`.
        NotConnected: As `open_connection`.
    """
    connection = BusConnection(settings)
    await open_connection(connection)
    return connection


async def open_connection(connection: BusConnection, waits: Callable[[str], None] = lambda _: None) -> None:
    """Connect to the NATS server. Call it once for each `BusConnection`. Several attempts are made in each second. If
    the call is cancelled or raises, the connection is closed. `waits`: called with the reason while no server answers:
    after a second, then after delays that grow to 30 s.

    Raises:
        ConnectRefused: The server refuses user, TLS settings or seed, or a file of a secret or of TLS is not usable. At
            once.
        NotConnected: No server was reached within `connect_seconds`, or it closed the connection at once.
    """
    client, settings = connection.client, connection.settings
    servers = ", ".join(settings.urls)
    refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    opened, trouble = False, ""

    async def on_error(error: Exception) -> None:
        nonlocal trouble
        text = str(error) or type(error).__name__
        if not opened and is_refusal(error) and not refused.done():
            refused.set_result(text)
        if opened or text != trouble:  # an attempt fails every second while no server answers
            trouble = text
            log.warning("bus_connection_error user=%s error=%s", settings.user, text)

    async def on_disconnect() -> None:
        if not connection.is_closing:
            log.warning("bus_disconnected user=%s", settings.user)
        connection.disconnected()

    async def on_reconnect() -> None:
        log.info("bus_reconnected user=%s", settings.user)
        connection.reconnected()

    async def on_close() -> None:
        connection.closed_for_good()

    try:
        secrets, tls = read_secrets(settings.nkey_seed_file, settings.token_file), client_context(settings.tls)
    except OSError as cause:
        raise ConnectRefused(str(cause)) from cause
    connecting = asyncio.ensure_future(
        client.connect(
            list(settings.urls),
            name=settings.name,
            error_cb=on_error,
            disconnected_cb=on_disconnect,
            reconnected_cb=on_reconnect,
            closed_cb=on_close,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            # nats-py waits the same time after every failure; drawn once per process, it spreads a fleet's reconnects.
            reconnect_time_wait=settings.reconnect_wait_seconds * random.uniform(0.8, 1.2),  # type: ignore[arg-type]  # noqa: S311
            ping_interval=settings.ping_seconds,  # type: ignore[arg-type]
            connect_timeout=2,
            inbox_prefix=settings.inbox_prefix,
            nkeys_seed_str=secrets.seed,
            token=secrets.token,
            tls=tls,
            pending_size=16 * 1024 * 1024,
        )
    )

    def say() -> None:
        waits(f"no connection to {servers}: {trouble or 'no answer'}")

    is_connected = False
    try:
        is_connected = await _ends_in_time(connecting, refused, settings.connect_seconds, say)
    finally:
        if not is_connected:
            connection.is_closing = True
            try:
                await end_tasks(connecting)
            finally:
                with contextlib.suppress(Exception):
                    await client.close()
    if refused.done():
        raise ConnectRefused(f"{servers}: {refused.result()}")
    if not is_connected:
        raise NotConnected(f"no connection to {servers} within {settings.connect_seconds:g} s")
    refused.cancel()
    try:
        connecting.result()
        opened = True
        await connection.open()
    except (OSError, NatsError) as cause:
        with contextlib.suppress(Exception):
            await client.close()
        raise NotConnected(f"{servers} closed the connection at once: {cause}") from cause


async def _ends_in_time(
    connecting: "asyncio.Future[None]",
    refused: "asyncio.Future[str]",
    seconds: float | None,
    waits: Callable[[], None],
) -> bool:
    """Wait until the server has answered, and return whether it did so in time and without a refusal.

    Args:
        refused: Done if the server refuses the client.
        seconds: Seconds after which to return False; None: never.
        waits: Called after delays that grow, while there is no answer.
    """
    backoff, time = Backoff(FIRST_SECONDS, MOST_SECONDS), asyncio.get_running_loop().time
    end = math.inf if seconds is None else time() + seconds
    while not (connecting.done() or refused.done()):
        left = end - time()
        if left <= 0:
            return False
        delay = backoff.seconds()
        await asyncio.wait({connecting, refused}, timeout=min(delay, left), return_when=asyncio.FIRST_COMPLETED)
        if delay < left and not (connecting.done() or refused.done()):
            waits()
    return not refused.done()
