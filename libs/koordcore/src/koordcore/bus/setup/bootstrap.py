"""Create and change streams, buckets, stores and consumers of work queues on the NATS server. No other code does this.

It is idempotent and runs at every start of the stack. Of an existing stream only fields are changed that lose no data,
except the oldest messages of a subject beyond a smaller number of messages per subject.
Any other difference is an error that a person has to resolve. Services only bind to the consumers.

Source: event-bus spec, 2 (rules), 3.2, 9.2 (versions).
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, cast

from koordcore.bus.client.connection import BusConnection, NoAnswer, NotConnected
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import ApiError, is_unanswered, patient_api, stream_info
from koordcore.bus.setup.streams import StreamSpec
from koordcore.requests.catalogue import WORK_QUEUES
from koordcore.requests.endpoint import WorkQueue
from koordcore.retry import Backoff

log = logging.getLogger("koordcore.bus")

MINIMUM_VERSION = (2, 14, 0)

# Fields that may change on an existing stream. `max_bytes` only grows: a full stream then accepts messages again. A new
# `compression` concerns new files; the server reads both kinds.
SAFE_FIELDS = frozenset(
    {
        "allow_direct",
        "allow_rollup_hdrs",
        "compression",
        "description",
        "max_bytes",
        "duplicate_window",
        "num_replicas",
        "max_msgs_per_subject",
        "max_msg_size",
    }
)

_NO_STORAGE: Final = 10047  # Error code of a server that lacks room
_NO_PEERS: Final = 10005  # Error code of a cluster in which no servers suit a stream; the text says why

_ABSENT_MEANS: dict[str, Any] = {"compression": "none", "description": ""}


class StreamDiffers(Exception):
    """A stream exists on the server with other values in fields that must not be changed automatically."""

    def __init__(self, stream: str, differences: dict[str, tuple[Any, Any]]) -> None:
        text = "; ".join(f"{field} is {found!r}, not {wanted!r}" for field, (found, wanted) in differences.items())
        super().__init__(f"stream {stream} exists with another configuration: {text}")
        self.stream = stream
        self.differences = differences


class FactsGone(Exception):
    """The stream of facts does not exist, and other streams of the cluster show that it did."""

    def __init__(self, stream: str, evidence: Sequence[str]) -> None:
        super().__init__(
            f"the stream of facts {stream} is gone: {', '.join(evidence)} had messages. Restore it with `koord restore`"
            " (docs/runbook.md, 'The log is gone'), or begin anew with --new-log"
        )
        self.stream = stream
        self.evidence = tuple(evidence)  # Names of the streams that prove that it existed


class ServerTooOld(Exception):
    """The version of the NATS server does not support atomic batches."""


class Change(StrEnum):
    """Effect of the bootstrap on one stream or consumer: CREATED, UPDATED, UNCHANGED (left as it was), or LEFT_OUT (not
    created, because the servers lack room for it).
    """

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    LEFT_OUT = "left out: the servers lack room for it"


async def bootstrap(
    connection: BusConnection, specs: Iterable[StreamSpec], *, new_log: bool = False
) -> dict[str, Change]:
    """Create the given streams on the NATS server. Change those that exist if no data is lost. If one stream must not
    be changed or created, none is created or changed.

    The stream of facts is created for a new cluster only. Messages in other streams (`StreamSpec.proves_facts`) show
    that the cluster is not new. A first bootstrap that was interrupted leaves streams without messages, so the next
    one completes it. `new_log`: begin a new log although the old one is gone. Snapshots and desired states of the old
    log are deleted, because their positions mean other facts in the new one.

    A stream without which services run (`StreamSpec.is_optional`) is left out with a warning if the servers lack room
    for it: an upgrade must not stop because its log was enlarged.

    Returns:
        Stream name -> change.

    Raises:
        ServerTooOld: The server does not support atomic batches.
        StreamDiffers: A stream exists with other values in fields that must not be changed automatically.
        FactsGone: The stream of facts does not exist although it did, and `new_log` is not set.
        ApiError: The server refused: too little space or missing permissions.
        NoAnswer: No answer came in time. It is unknown whether the server acted.
    """
    require_version(connection.server_version)
    planned = [await _planned(connection, spec) for spec in specs]
    evidence = [each.spec.name for each in planned if each.spec.proves_facts and each.last_seq]
    gone = next((each for each in planned if each.spec.holds_facts and each.change is Change.CREATED), None)
    if gone is not None and evidence:
        if not new_log:
            raise FactsGone(gone.spec.name, evidence)
        for each in planned:
            if each.spec.holds_positions and each.last_seq:
                await patient_api(connection, f"$JS.API.STREAM.PURGE.{each.spec.name}", b"")
    return {each.spec.name: await _made(connection, each) for each in planned}


async def replicas_of(connection: BusConnection, stream: str) -> int | None:
    """Return the number of servers that store a stream; None if the stream does not exist.

    Raises:
        ApiError: The server refused the request.
        NoAnswer: No answer came in time.
    """
    found = await stream_info(connection, stream, patient_api)
    return None if found is None else int(found["config"]["num_replicas"])


def require_version(version: str) -> None:
    """Check that a version of the NATS server ("2.15.1") is supported.

    Raises:
        ServerTooOld: The version is below 2.14.
    """
    numbers = tuple(int(part) for part in version.split(".")[:3])
    if numbers < MINIMUM_VERSION:
        raise ServerTooOld(f"nats-server {version}: its atomic batches do not suit, 2.14 or newer is needed")


async def until_created(connection: BusConnection, names: BusNames, waits: Callable[[str], None]) -> None:
    """Wait until the streams of a cluster exist, however long that takes, and also while the server does not answer.
    The stream of facts is created last, so only this stream is looked for. A service has the right to read it. `waits`:
    Called with the reason after each look that did not find the stream.

    Raises:
        Denied: The user may not read the stream of facts.
        ApiError: The server refused to answer, for example because JetStream is not enabled.
        NotConnected: The server closed the connection for good.
    """
    backoff = Backoff(0.2, 10.0)
    while True:
        try:
            if await stream_info(connection, names.ev) is not None:
                return
            reason = f"waiting for the stream {names.ev}; `koord bus bootstrap` creates it"
        except (NotConnected, NoAnswer, ApiError) as error:
            if not is_unanswered(error):
                raise
            if connection.is_closed:
                raise NotConnected(f"the connection was closed: {await connection.closed()}") from error
            reason = f"no answer about the stream {names.ev}: {error or type(error).__name__}"
        waits(reason)
        await backoff.wait()


async def _made(connection: BusConnection, planned: "_Planned") -> Change:
    """Do what a stream needs, and return what was done."""
    spec = planned.spec
    if planned.change is Change.UNCHANGED:
        return planned.change
    request = "CREATE" if planned.change is Change.CREATED else "UPDATE"
    try:
        subject = f"$JS.API.STREAM.{request}.{spec.name}"
        await patient_api(connection, subject, json.dumps(planned.config).encode())
    except ApiError as error:
        if planned.change is not Change.CREATED or not spec.is_optional or not _lacks_room(error):
            raise
        log.warning(
            "stream_left_out stream=%s bytes=%d error=%r remedy=%r",
            spec.name,
            spec.max_bytes,
            str(error),
            "offer more room with max_file_store of the servers, then run `koord bus bootstrap` again",
        )
        return Change.LEFT_OUT
    return planned.change


def _lacks_room(error: ApiError) -> bool:
    """Return whether servers refuse a stream because they have less room than it reserves."""
    return error.err_code == _NO_STORAGE or (error.err_code == _NO_PEERS and "insufficient storage" in str(error))


class _Planned(NamedTuple):
    """What a stream needs."""

    spec: StreamSpec
    change: Change
    config: dict[str, Any]  # Configuration to create or update it with
    last_seq: int  # Number of messages that it ever had; 0 if it does not exist


async def _planned(connection: BusConnection, spec: StreamSpec) -> _Planned:
    wanted, info = spec.config(), await stream_info(connection, spec.name, patient_api)
    if info is None:
        return _Planned(spec, Change.CREATED, wanted, 0)
    found = info["config"]
    wanted["max_bytes"] = max(spec.max_bytes, found["max_bytes"])
    differences = compare(found, wanted)
    refused = {
        field: pair for field, pair in differences.items() if field not in SAFE_FIELDS and not _grows(field, pair)
    }
    if refused:
        raise StreamDiffers(spec.name, refused)
    change = Change.UPDATED if differences else Change.UNCHANGED
    return _Planned(spec, change, {**found, **wanted}, int(info["state"]["last_seq"]))


def _grows(field: str, pair: tuple[Any, Any]) -> bool:
    """Return whether a stream only gets further subjects, so that it keeps what it has."""
    return field == "subjects" and set(pair[0] or ()) <= set(pair[1] or ())


def compare(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields of a stream's configuration that differ from the wanted ones. `found`: configuration on the
    server, as JSON of the JetStream API. `wanted`: configuration that the stream must have. Fields of `found` that it
    lacks are ignored, except `republish`.

    Returns:
        Field -> (value in `found`, value in `wanted`); empty if nothing differs.
    """
    differences: dict[str, tuple[Any, Any]] = {}
    for field in sorted({*wanted, *(("republish",) if "republish" in found else ())}):
        want = wanted.get(field)
        have = found.get(field, _ABSENT_MEANS.get(field, False if isinstance(want, bool) else None))
        if field == "republish" and isinstance(have, dict) and isinstance(want, dict):
            have = {key: value for key, value in cast("dict[str, Any]", have).items() if key in want}
        if field == "subjects":
            same = set(cast("list[str]", have or [])) == set(cast("list[str]", want or []))
        else:
            same = have == want
        if not same:
            differences[field] = (have, want)
    return differences


_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """Configuration of one durable pull consumer, which a worker reads."""

    stream: str
    durable: str  # Name of the consumer
    filter_subject: str  # Subject of the messages to deliver; may contain wildcards
    ack_wait_seconds: float = 60.0  # Time after which the server delivers a message again that was not acknowledged
    max_deliver: int = 8  # Largest number of deliveries of one message
    max_ack_pending: int = 64  # Largest number of delivered messages without acknowledgement
    # Delays of the worker after failed deliveries. The consumer's own `backoff` is not used, because it replaces
    # `ack_wait`: work that takes longer than its first value would be delivered twice.
    backoff_seconds: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0)

    def delay_seconds(self, deliveries: int) -> float:
        """Return the delay in seconds before a failed message is delivered again. `deliveries`: number of failed
        deliveries so far, from 1. Beyond the length of `backoff_seconds`, the last delay applies.
        """
        return self.backoff_seconds[min(deliveries, len(self.backoff_seconds)) - 1]

    def config(self) -> dict[str, Any]:
        """Return the configuration as JSON value of the JetStream API, which has times in nanoseconds."""
        return {
            "durable_name": self.durable,
            "filter_subject": self.filter_subject,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "replay_policy": "instant",
            "ack_wait": int(self.ack_wait_seconds * _SECOND),
            "max_deliver": self.max_deliver,
            "max_ack_pending": self.max_ack_pending,
        }


def consumer_of(queue: WorkQueue[Any], names: BusNames) -> ConsumerSpec:
    """Return the durable consumer of a work queue. It is named `<service>-<verb>`."""
    return ConsumerSpec(
        stream=names.cmd,
        durable=f"{queue.service}-{queue.verb}",
        filter_subject=f"{names.root}{queue.address}",
        ack_wait_seconds=queue.ack_wait_seconds,
        max_deliver=queue.max_deliver,
    )


def consumers(names: BusNames) -> list[ConsumerSpec]:
    return [consumer_of(queue, names) for queue in WORK_QUEUES]


async def bootstrap_consumers(connection: BusConnection, specs: Iterable[ConsumerSpec]) -> dict[str, Change]:
    """Create the given consumers on the server if they do not exist.

    Returns:
        Durable name -> change.

    Raises:
        StreamDiffers: A consumer exists with another configuration.
        ApiError: The JetStream API answered with an error.
        NoAnswer: No answer came in time. It is unknown whether the server acted.
    """
    return {spec.durable: await _ensure(connection, spec) for spec in specs}


async def _ensure(connection: BusConnection, spec: ConsumerSpec) -> Change:
    wanted = spec.config()
    try:
        data = await patient_api(connection, f"$JS.API.CONSUMER.INFO.{spec.stream}.{spec.durable}", b"")
    except ApiError as error:
        if error.err_code != 10014:  # consumer not found
            raise
        request = {"stream_name": spec.stream, "config": wanted, "action": "create"}
        await patient_api(
            connection, f"$JS.API.CONSUMER.DURABLE.CREATE.{spec.stream}.{spec.durable}", json.dumps(request).encode()
        )
        return Change.CREATED
    found = cast("dict[str, Any]", json.loads(data)["config"])
    differences = {field: (found.get(field), want) for field, want in wanted.items() if found.get(field) != want}
    if differences:
        raise StreamDiffers(f"{spec.stream}/{spec.durable}", differences)
    return Change.UNCHANGED
