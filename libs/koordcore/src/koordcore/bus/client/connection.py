"""The NATS connection of a process: settings, requests over one inbox, and callbacks after reconnects.

All adapters of a process share one `BusConnection`, which uses `wire`. `opening` connects it.

Source: event-bus spec, 10, 11.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from nats.errors import Error as NatsError

from koordcore.bus.client.wire import BusClient, Reply, hpub, pub
from koordcore.retry import Backoff, retry


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientFiles:
    ca: Path  # Authorities that may have signed the server's certificate
    certificate: Path | None = None  # Certificate of this client; None: the client shows none
    key: Path | None = None  # Key of this certificate


def client_context(files: TlsClientFiles | None) -> ssl.SSLContext | None:
    """Return the TLS context of a client; None for a connection without TLS.

    Raises:
        OSError: A file cannot be read, or does not contain a valid certificate or key. The message names the file.
    """
    if files is None:
        return None
    # nats-py upgrades to TLS in a way that makes asyncio warn of each end of a connection.
    logging.getLogger("asyncio").addFilter(_is_no_end_of_tls)
    read = files.ca
    try:
        context = ssl.create_default_context(cafile=str(files.ca))
        if files.certificate is not None:
            read = files.certificate
            context.load_cert_chain(files.certificate, files.key)
    except OSError as error:  # an SSLError, too; neither names the file
        raise OSError(f"{read}: {error}") from error
    return context


def _is_no_end_of_tls(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("returning true from eof_received()")


# pyright: reportUnknownMemberType=false
# nats-py's connect and close are only partly annotated.


log = logging.getLogger("koordcore.bus")

T = TypeVar("T")

USER_INFO: Final = "$SYS.REQ.USER.INFO"  # Subject on which the server tells a client who it is
JETSTREAM_API: Final = "$JS.API"  # First tokens of requests to JetStream, in the account that has the streams
# First tokens of these requests in other accounts. There, the server itself answers `$JS.API`.
IMPORTED_API: Final = "koord.api"
# Accounts in which requests to JetStream have the server's own names. Agents and CRI proxies send only direct gets,
# which have the same name everywhere. `$G` is the account of a server without accounts.
_HOME_ACCOUNTS: Final = frozenset(("KOORD", "$G", "AGENTS", "CRIPROXIES"))
_INFO_ATTEMPTS: Final = 5  # Requests without an answer after which the account counts as unknown


class ConnectRefused(Exception):
    """The NATS server refuses the user, the TLS settings or the protocol version. A retry would not help."""


class NotConnected(Exception):
    """There is no connection to the NATS server at this moment. Nothing was sent."""


class NoAnswer(Exception):
    """The NATS server did not answer in time, or the connection broke. It is unknown whether the server acted."""


class NoResponders(NoAnswer):
    """Nothing handles the subject: JetStream is starting or has no leader, or the stream does not exist."""


class Denied(Exception):
    """The NATS user has no permission to publish to, or subscribe to, a subject."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"permission denied: {subject}")
        self.subject = subject


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Addresses, credentials and time limits (in seconds) for a connection to the NATS server."""

    urls: tuple[str, ...]  # URLs of one or more servers, `nats://host:port` or `tls://host:port`
    name: str = "koord"  # Name of the connection in the server's monitoring
    user: str = "any"  # Name of the NATS user. Its inbox prefix is `_INBOX_<user>`.
    nkey_seed_file: Path | None = None  # File with the seed `SU...` of the user. None: connect without a key.
    # File with a token that the issuer of credentials checks. It is read again at each reconnect.
    token_file: Path | None = None
    tls: TlsClientFiles | None = None  # PEM files for TLS. None: connect without TLS.
    connect_seconds: float | None = 30.0  # Time after which `open_connection` gives up; None: never
    reconnect_wait_seconds: float = 0.5  # Delay before a reconnect; it varies by 20 percent at random
    ping_seconds: float = 10.0  # Interval of the pings that detect a broken connection

    @property
    def inbox_prefix(self) -> str:
        """Prefix of the subjects on which this user receives answers (event-bus spec, 10)."""
        return f"_INBOX_{self.user}"


class BusConnection:
    """The connection to the NATS server. All adapters of the process share it. Until `open_connection` has opened it,
    `is_connected` is False, and requests fail with `NotConnected`.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.client = BusClient()
        self.settings = settings
        self.epoch = 0
        self.is_closing = False
        # First tokens of requests to JetStream, except direct gets, which have the same name in every account.
        self.api_prefix = JETSTREAM_API
        self._inbox = ""
        self._tokens = itertools.count(1)
        self._waiting: dict[bytes, tuple[asyncio.Future[Reply], tuple[str, ...]]] = {}
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()
        self._on_reconnect: dict[int, Callable[[], None]] = {}
        self._denied_subscriptions: set[str] = set()
        self._learning: asyncio.Task[None] | None = None
        self._subscribes: frozenset[str] | None = None  # Subjects that the user may subscribe to; None: not limited
        self.client.on_denied = self._denied

    async def open(self) -> None:
        """Subscribe to the inbox for answers. Only `open_connection` calls it, once."""
        self._inbox = self.client.new_inbox()
        await self.client.subscribe_sink(f"{self._inbox}.*", self._dispatch)
        await self.learn_account()
        self._connected.set()
        self._call_back()

    async def learn_account(self) -> None:
        """Ask the server for the account and the rights of this user, which decide `api_prefix`. A server that does not
        tell has one account. Called after each connect.
        """
        about: dict[str, Any] = {}
        for _ in range(_INFO_ATTEMPTS):
            try:
                about = json.loads((await self.request(USER_INFO)).data)["data"]
                break
            except (Denied, NoResponders):
                break
            except NotConnected:
                return
            except NoAnswer:
                continue
        else:
            return  # what was known before still holds
        rights = about.get("permissions", {}).get("subscribe")
        self._subscribes = None if rights is None else frozenset(rights.get("allow", ()))
        self.api_prefix = JETSTREAM_API if about.get("account", "$G") in _HOME_ACCOUNTS else IMPORTED_API

    def may_subscribe(self, subject: str) -> bool:
        """Return whether the user has the right to subscribe to exactly this subject, which may contain wildcards."""
        return self._subscribes is None or subject in self._subscribes

    @property
    def is_connected(self) -> bool:
        return self.client.is_connected and not self.client.is_draining

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed permanently."""
        return self.client.is_closed

    @property
    def server_version(self) -> str:
        """Version of the NATS server, for example "2.15.1"."""
        version = self.client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def is_clustered(self) -> bool:
        """Whether the server belongs to a cluster of servers."""
        return self.client.is_clustered

    @property
    def max_payload(self) -> int:
        """Largest size of headers and body together, in bytes, that the server accepts in one message."""
        return self.client.max_payload

    async def closed(self) -> str:
        """Wait until the connection is closed permanently, and return the reason, such as revoked rights."""
        await self._closed.wait()
        return str(self.client.last_error or "closed")

    async def wait_connected(self, seconds: float) -> bool:
        """Wait until the connection is established. Return False if it is not after `seconds`, or if it was closed."""
        if self.is_connected:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._connected.wait()
        return self.is_connected

    async def request(self, subject: str, payload: bytes = b"", *, header: bytes = b"", timeout: float = 2.0) -> Reply:
        """Publish a message with a reply address, and return the first answer. `header`: Encoded header lines, see
        `encode_headers`. `timeout`: real seconds to wait.

        Raises:
            NotConnected: There is no connection at this moment; nothing was sent.
            NoAnswer: No answer came in time. It is unknown whether the server acted.
            NoResponders: Nothing handles the subject.
            Denied: The user may not publish to this subject.
        """
        token, future = self.expect((subject,))
        reply_to = self.address(token)
        try:
            self.write(hpub(subject, reply_to, header, payload) if header else pub(subject, reply_to, payload))
            return await self.answer(future, timeout)
        finally:
            self.forget(token)

    async def patiently(
        self,
        ask: Callable[[], Awaitable[T]],
        what: str,
        *,
        deadline: float,
        retry_if: Callable[[Exception], bool] = lambda error: isinstance(error, (NotConnected, NoAnswer)),
    ) -> T:
        """Call `ask` until it succeeds, and return its result. Between attempts, wait for the connection.

        Args:
            ask: Sends a request once. It must be safe to repeat.
            deadline: Real seconds after which no further attempt is made.
            retry_if: Called with an error. If it returns True, another attempt follows; else the error is raised.

        Raises:
            NoAnswer: The deadline passed, or the connection was closed permanently.
        """
        time = asyncio.get_running_loop().time
        end = time() + deadline

        async def once() -> T:
            if not self.is_closed and time() < end:
                await self.wait_connected(end - time())
            return await ask()

        try:
            return await retry(
                once,
                Exception,
                backoff=Backoff(0.1, 0.5),
                deadline_seconds=deadline,
                retry_if=lambda error: retry_if(error) and not self.is_closed,
            )
        except Exception as error:
            if retry_if(error):
                raise NoAnswer(f"{what}: {error or type(error).__name__}") from error
            raise

    def expect(self, subjects: tuple[str, ...]) -> tuple[bytes, asyncio.Future[Reply]]:
        """Return the token of a new one-time reply address, and the future of the answer to it. The caller publishes
        with reply address `address(token)`, waits with `answer`, and then calls `forget(token)`. If the server denies
        publishing to one of `subjects`, the future fails with `Denied`.
        """
        token = b"%x" % next(self._tokens)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[token] = (future, subjects)
        return token, future

    def forget(self, token: bytes) -> None:
        """Remove a reply address that `expect` returned. A later answer to it is discarded."""
        self._waiting.pop(token, None)

    async def answer(self, future: asyncio.Future[Reply], timeout: float) -> Reply:
        """Wait at most `timeout` real seconds for a future that `expect` returned, and return its answer.

        Raises:
            NoAnswer: No answer came in time. It is unknown whether the server acted.
            NoResponders: Nothing handles the subject.
            Denied: The user may not publish to one of the subjects.
        """
        try:
            async with asyncio.timeout(timeout):
                reply = await future
        except TimeoutError as cause:
            raise NoAnswer(f"no answer within {timeout:g} s") from cause
        if not reply.data and reply.status == "503":
            raise NoResponders("no responders")
        return reply

    def address(self, token: bytes) -> str:
        """Return the reply subject for a token that `expect` returned."""
        return f"{self._inbox}.{token.decode()}"

    def write(self, commands: bytes) -> None:
        """Send encoded commands of the NATS protocol. Raises NotConnected if there is no connection."""
        if not self.is_connected:
            raise NotConnected
        self.client.write(commands)

    def on_reconnect(self, action: Callable[[], None]) -> Callable[[], None]:
        """Register `action`, which is called when the connection is opened, reconnected, or closed permanently. Return
        a function that removes it again.
        """
        key = next(self._tokens)
        self._on_reconnect[key] = action
        return lambda: void(self._on_reconnect.pop(key, None))

    async def drain_and_close(self) -> None:
        """Send buffered data, then close. Call it after the last append was acknowledged."""
        self.is_closing = True
        with contextlib.suppress(NatsError, OSError):
            if self.client.is_connected:
                await self.client.flush(2)
        await self.client.close()
        self._fail_waiting(NoAnswer("the connection was closed"))

    def disconnected(self) -> None:
        """Record that the connection was lost. All waiting requests fail with `NoAnswer`."""
        if self._learning is not None:
            self._learning.cancel()
        self._connected.clear()
        self._fail_waiting(NoAnswer("the connection broke"))

    def reconnected(self) -> None:
        """Record that the connection and its subscriptions exist again. Call the `on_reconnect` functions as soon as
        the account is known, because an upgrade may have moved the user to another one.
        """
        self.epoch += 1
        self._learning = asyncio.create_task(self._learn_again(self.epoch))

    async def _learn_again(self, epoch: int) -> None:
        # Not inside the client's callback: there, it would hold up the next reconnect.
        before = self.api_prefix
        await self.learn_account()
        if self.api_prefix != before:
            # Whoever uses the connection knows the earlier names, so the process has to begin again.
            log.warning("bus_account_changed user=%s: the connection is closed", self.settings.user)
            await self.client.close()
            return
        if epoch == self.epoch and self.is_connected:
            self._connected.set()
            self._call_back()

    def closed_for_good(self) -> None:
        """Record that the connection was closed permanently. Call the `on_reconnect` functions."""
        self.disconnected()
        self._closed.set()
        self._call_back()

    def _call_back(self) -> None:
        for action in list(self._on_reconnect.values()):
            action()

    def _dispatch(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        token = subject[subject.rfind(b".") + 1 :]
        waiting = self._waiting.get(token)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_result(Reply(header, payload))

    def _denied(self, operation: str, subject: str) -> None:
        if subject != USER_INFO:
            log.error("bus_permission_denied operation=%s subject=%s user=%s", operation, subject, self.settings.user)
        if operation != "publish":
            self._denied_subscriptions.add(subject)
            return
        for future, subjects in list(self._waiting.values()):
            if subject in subjects and not future.done():
                future.set_exception(Denied(subject))

    def _fail_waiting(self, error: Exception) -> None:
        for future, _ in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)


def void(_: object) -> None:
    """Do nothing. Used as a callback whose argument is not needed."""


_log: Final = logging.getLogger("koordcore.bus")


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """Call `read` until the log answers, and return its result. Wait 0.2 to 1 second between two attempts. There is no
    deadline. Only the error `NoAnswer` leads to a further attempt.
    """

    def note(error: Exception, delay: float) -> None:
        _log.warning("bus_read_repeated reason=%s retry_seconds=%.1f", error, delay)

    return await retry(read, NoAnswer, backoff=Backoff(0.2, 1.0), on_retry=note)
