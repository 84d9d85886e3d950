"""What somebody with the key of one user of the log tries, and what the streams and the account show of it.

The lists are made from the manifests and the streams, so a new user, a new right and a new stream are attacked, too.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.client.wire import hpub, pub
from koordcore.bus.names import BusNames
from koordcore.bus.setup.manifest import EVERY_KIND, ServiceManifest
from koordcore.bus.setup.principals import permissions, shares
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats_config import ACCOUNT
from koordcore.events import CATALOGUE

STRANGER: Final = "victim"
"""Name of a node, a pod and everything else that is not the attacker's."""
_CONSUMER: Final = {"name": "thief", "ack_policy": "none", "deliver_policy": "all"}


class Attempt(NamedTuple):
    """A message that an attacker sends: subject, reply subject, header lines, body."""

    subject: str
    reply: str = ""
    header: bytes = b""
    body: bytes = b"{}"


class LogState(NamedTuple):
    """All streams of a server as one value."""

    subjects: dict[tuple[str, str], int]  # (stream, subject) -> number of messages
    firsts: dict[str, int]  # Stream -> first sequence
    configs: dict[str, str]  # Stream -> configuration
    consumers: dict[str, tuple[str, ...]]  # Stream -> its consumers


async def log_state(judge: BusConnection) -> LogState:
    """Return what the streams of the server contain."""

    async def ask(subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return json.loads((await judge.request(subject, json.dumps(body or {}).encode(), timeout=10)).data)

    state = LogState({}, {}, {}, {})
    names: list[str] = (await ask("$JS.API.STREAM.NAMES"))["streams"] or []
    for stream in names:
        info = await ask(f"$JS.API.STREAM.INFO.{stream}", {"subjects_filter": ">"})
        for subject, count in info["state"].get("subjects", {}).items():
            state.subjects[stream, subject] = count
        state.firsts[stream] = info["state"]["first_seq"]
        state.configs[stream] = json.dumps(info["config"], sort_keys=True)
        state.consumers[stream] = tuple(sorted((await ask(f"$JS.API.CONSUMER.NAMES.{stream}"))["consumers"] or []))
    return state


def reached_by(manifest: ServiceManifest, names: BusNames) -> tuple[str, ...]:
    """Return the subjects in the account of the streams to which the rights of a user lead; may contain wildcards."""
    own = permissions(manifest, names).publish_allow
    if manifest.account == ACCOUNT:
        return own
    at = {share.local: share.subject for share in shares(names) if share.account == manifest.account}
    return (*own, *(remote for local, remote in at.items() if any(matches(right, local) for right in own)))


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject, or every subject of a pattern with wildcards, belongs to a pattern of NATS."""
    wanted, found = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(found) > index
        if index >= len(found) or (token not in ("*", found[index])):
            return False
    return len(wanted) == len(found)


def targets(names: BusNames) -> list[str]:
    """Return subjects to which the server must not write, or listen, in the name of the attacker."""
    kinds = sorted({entry.kind for entry in CATALOGUE if entry.stream == "ev"})
    everything = [spec.name for spec in streams(names, replicas=1)]
    written = [
        *(f"{names.prefix('ev')}{kind}.{STRANGER}" for kind in kinds),
        *(f"{names.prefix('push')}{kind}.{STRANGER}" for kind in ("node", "nodepolicy")),
        f"{names.prefix('obs')}node.{STRANGER}",
        f"{names.prefix('audit')}request.{STRANGER}",
        f"{names.prefix('explanations')}pod.{STRANGER}",
        names.dlq_subject(STRANGER),
        names.desired_subject(STRANGER),
        *(concrete(subject) for subject in subjects_of_snapshots(names)),
        *(f"$KV.{names.leader_bucket}.leader.{kind.name}" for kind in EVERY_KIND if kind.leads),
        *(f"{names.root}cmd.{service}.drain" for service in ("descheduler", "manager")),
        *(f"{names.root}req.{service}.change_objects" for service in ("manager", "scheduler", "descheduler")),
        "$SYS.REQ.USER.AUTH",
    ]
    calls = [
        f"{prefix}.{verb}.{stream}"
        for prefix in ("$JS.API", "koord.api")
        for stream in everything
        for verb in ("STREAM.PURGE", "STREAM.DELETE", "STREAM.MSG.DELETE")
    ]
    return [*written, *calls]


def subjects_of_snapshots(names: BusNames) -> list[str]:
    """Return the subjects of all streams with snapshots."""
    found = [spec.subjects for spec in streams(names, replicas=1) if spec.name in names.with_snapshots]
    return list(itertools.chain(*found))


def concrete(pattern: str) -> str:
    """Return a subject of a pattern: wildcards become the name of the stranger."""
    return ".".join(STRANGER if token in ("*", ">") else token for token in pattern.split("."))


def taken(right: str, names: BusNames) -> list[str]:
    """Return subjects of a right to publish, such that each stream with subjects of this right takes one, and one more
    subject. `$O.<store>.>` gives one of entries, one of pieces, and one that no stream takes.
    """
    subjects = itertools.chain(*(spec.subjects for spec in streams(names, replicas=1)))
    common = (_common(right, subject) for subject in subjects)
    return list(dict.fromkeys([concrete(right), *(concrete(each) for each in common if each)]))


def _common(first: str, second: str) -> str:
    """Return a pattern whose subjects belong to both patterns; "" if there is none."""
    found: list[str] = []
    left, right = first.split("."), second.split(".")
    for index in range(max(len(left), len(right))):
        pair = [tokens[index] if index < len(tokens) else "" for tokens in (left, right)]
        if ">" in pair and "" not in pair:
            rest = right if pair[0] == ">" else left
            return ".".join([*found, *rest[index:]])
        fixed = {token for token in pair if token != "*"}
        if "" in fixed or len(fixed) > 1:
            return ""
        found.append(fixed.pop() if fixed else "*")
    return ".".join(found)


def bodies(names: BusNames) -> list[bytes]:
    """Return bodies of requests that make the server answer with content."""
    facts = f"{names.prefix('ev')}>"
    return [
        b"",
        json.dumps({"last_by_subj": facts}).encode(),
        json.dumps({"seq": 1, "batch": 2, "next_by_subj": facts}).encode(),
        json.dumps({"multi_last": [facts]}).encode(),
        json.dumps({"batch": 2, "expires": 1_000_000_000}).encode(),
    ]


def by_publish(manifest: ServiceManifest, names: BusNames) -> Iterator[Attempt]:
    """Yield messages on subjects that the user may not publish to."""
    for target in targets(names):
        yield Attempt(target)
        yield Attempt(target, header=b"Nats-Rollup: all\r\n", body=b"")


def by_reply(manifest: ServiceManifest, names: BusNames) -> Iterator[Attempt]:
    """Yield everything that the user may publish, with a reply subject that it may not publish to."""
    rights = [concrete(right) for right in permissions(manifest, names).publish_allow]
    single, batch = bodies(names)[1], bodies(names)[3]
    for subject, target in itertools.product(rights, targets(names)):
        yield Attempt(subject, target, body=batch if ".DIRECT.GET." in subject else single)


def by_header(manifest: ServiceManifest, names: BusNames) -> Iterator[Attempt]:
    """Yield everything that the user may publish, with headers that name other subjects or give orders."""
    orders = (
        f"Nats-Subject: {names.prefix('ev')}podspec.{STRANGER}\r\n".encode(),
        b"Nats-Rollup: all\r\n",
        b"Nats-Rollup: sub\r\n",
        b"Nats-Msg-Id: x\r\nNats-Expected-Last-Sequence: 0\r\n",
        f"Nats-Schedule: @every 1s\r\nNats-Schedule-Target: {names.prefix('ev')}podspec.{STRANGER}\r\n".encode(),
    )
    for right, header in itertools.product(permissions(manifest, names).publish_allow, orders):
        if ".API." not in right and ".api." not in right:
            for subject in taken(right, names):
                yield Attempt(subject, header=header, body=b"x")


def by_delivery(manifest: ServiceManifest, names: BusNames) -> Iterator[Attempt]:
    """Yield requests whose body names a subject on which the server shall write: consumers and copies."""
    everything = [spec.name for spec in streams(names, replicas=1)]
    inbox = f"_INBOX_{manifest.name}.thief"
    for prefix, stream in itertools.product(("$JS.API", "koord.api", "$JS.main.API"), everything):
        for target in (*targets(names)[:40], inbox, f"$JS.API.STREAM.DELETE.{names.ev}"):
            config = {**_CONSUMER, "deliver_subject": target}
            asked = json.dumps({"stream_name": stream, "config": config}).encode()
            copy = json.dumps({"deliver_subject": target, "no_consumers": True, "chunk_size": 1024}).encode()
            for call in (f"CONSUMER.CREATE.{stream}", f"CONSUMER.CREATE.{stream}.thief"):
                yield Attempt(f"{prefix}.{call}", inbox, body=asked)
            yield Attempt(f"{prefix}.STREAM.SNAPSHOT.{stream}", inbox, body=copy)
        pulled = json.dumps({"stream_name": stream, "config": _CONSUMER}).encode()
        yield Attempt(f"{prefix}.CONSUMER.CREATE.{stream}.thief", inbox, body=pulled)
        durable = {"stream_name": stream, "config": {**_CONSUMER, "durable_name": "thief"}}
        yield Attempt(f"{prefix}.CONSUMER.DURABLE.CREATE.{stream}.thief", inbox, body=json.dumps(durable).encode())


def by_streams(manifest: ServiceManifest, names: BusNames) -> Iterator[Attempt]:
    """Yield streams that would copy from, or republish to, what the user may not reach."""
    inbox, external = f"_INBOX_{manifest.name}.thief", {"api": "$JS.API", "deliver": f"{names.prefix('ev')}x"}
    for prefix, spec in itertools.product(("$JS.API", "koord.api"), streams(names, replicas=1)):
        source = {"name": spec.name}
        for config in (
            {"mirror": source},
            {"sources": [source]},
            {"mirror": {**source, "external": external}},
            {"subjects": [f"_INBOX_{manifest.name}.>"], "republish": {"src": ">", "dest": spec.subjects[0]}},
            {"subjects": [f"{names.prefix('ev')}>"]},
        ):
            asked = json.dumps({"name": "thief", "storage": "file", **config}).encode()
            yield Attempt(f"{prefix}.STREAM.CREATE.thief", inbox, body=asked)
        yield Attempt(f"{prefix}.STREAM.UPDATE.{spec.name}", inbox, body=json.dumps({"name": spec.name}).encode())


def by_reading(manifest: ServiceManifest, names: BusNames) -> Iterator[Attempt]:
    """Yield requests for messages of every stream."""
    inbox = f"_INBOX_{manifest.name}.thief"
    for prefix, spec in itertools.product(("$JS.API", "koord.api"), streams(names, replicas=1)):
        for body in bodies(names)[1:]:
            for call in ("STREAM.MSG.GET", "DIRECT.GET", "STREAM.INFO", "CONSUMER.NAMES"):
                yield Attempt(f"{prefix}.{call}.{spec.name}", inbox, body=body)
        yield Attempt(f"{prefix}.DIRECT.GET.{spec.name}.{concrete(spec.subjects[0])}", inbox, body=b"")


Attack = Callable[[ServiceManifest, BusNames], Iterator[Attempt]]
ATTACKS: Final[tuple[Attack, ...]] = (by_publish, by_reply, by_header, by_delivery, by_streams, by_reading)

_PENDING_AT_ONCE: Final = 500


async def send_all(attacker: BusConnection, attempts: Iterator[Attempt]) -> int:
    """Send all messages, wait until the server has read them, and return their number."""
    number = 0
    for each in attempts:
        command = (
            hpub(each.subject, each.reply, each.header, each.body)
            if each.header
            else pub(each.subject, each.reply, each.body)
        )
        attacker.write(command)
        number += 1
        if number % _PENDING_AT_ONCE == 0:
            await attacker.client.flush(30)
    await attacker.client.flush(30)
    await asyncio.sleep(0)
    return number
