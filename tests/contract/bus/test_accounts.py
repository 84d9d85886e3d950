"""The key of one user is no key to anything else: not by a reply subject, a header, or a subject in a body.

The server checks the subject of a message. It answers to the reply subject of the message in its own name. So these
tests send everything that a user may send, with everything that it may not write as reply, and compare all streams.
"""

import base64
import logging
from collections.abc import Iterator

import pytest
from koordcore.bus.adapters.desired import JetStreamPushFeed
from koordcore.bus.client.wire import hpub, pub
from koordcore.bus.names import BusNames
from koordcore.bus.setup.manifest import EVERY_KIND, ServiceManifest, agent, criproxy
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats_config import ACCOUNT
from koordcore.events.envelope import AggregateRef
from koordcore.events.node_ledger import NodeResourcesReturned
from koordcore.ports.eventlog import Appended
from support.bus.attacks import (
    ATTACKS,
    Attack,
    LogState,
    by_reply,
    concrete,
    log_state,
    matches,
    reached_by,
    send_all,
)
from support.bus.bus_worlds import sealed
from support.bus.guarded import JUDGE, Guarded, GuardedCluster
from support.servers import run_now, server_directory
from support.until import until

pytestmark = pytest.mark.nats

NAMES = BusNames("attacked")
NODES = (
    agent("n1", name="agent-n1"),
    agent("n2", name="agent-n2"),
    agent("n3", name="agent-n3", for_proxy=True),
    criproxy("n1", name="criproxy-n1"),
)
USERS = {manifest.name: manifest for manifest in (*EVERY_KIND, *NODES)}
CONFINED = [manifest for manifest in USERS.values() if manifest.account != ACCOUNT]
SECRET = b"SECRET"
BARRIER = b'{ "seq": 1 }'
OF_THE_SERVER = ("_R_.>", "_GR_.>", "$JS.EVENT.>", "$SYS.>", "$JSC.>", f"_INBOX_{JUDGE}.>")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with server_directory() as directory:
        found = Guarded(directory, NAMES, USERS.values())
        run_now(found.start())
        try:
            yield found
        finally:
            run_now(found.kill())


async def attacked(
    guarded: Guarded, manifest: ServiceManifest, attack: Attack
) -> tuple[list[str], list[bytes], LogState, LogState]:
    """Run an attack, and return subjects heard by the streams' account, the attacker's answers, states around it."""
    heard: list[str] = []
    answers: list[bytes] = []
    async with (
        guarded.relaying(),
        guarded.connected(JUDGE) as judge,
        guarded.connected(manifest.name) as attacker,
    ):
        for spec in streams(NAMES, replicas=1):
            await judge.request(concrete(spec.subjects[0]), SECRET, timeout=10)  # stored before the attack begins

        def hear(subject: bytes, _reply: bytes, _header: bytes, body: bytes) -> None:
            if body != BARRIER:
                heard.append(subject.decode())

        await judge.client.subscribe_sink(">", hear)
        for subject in (f"_INBOX_{manifest.name}.>", ">", "koord.>", "$KV.>", "_INBOX_manager.>", "_R_.>"):
            await attacker.client.subscribe_sink(subject, lambda _s, _r, header, body: answers.append(header + body))
        await judge.client.flush()
        await attacker.client.flush()
        heard.clear()
        before = await log_state(judge)
        heard.clear()
        assert await send_all(attacker, attack(manifest, NAMES)) > 0
        # What the server does with the messages of the attacker, it does before it answers these.
        for spec in streams(NAMES, replicas=1):
            await judge.request(f"$JS.API.STREAM.INFO.{spec.name}", BARRIER)
        await judge.request(f"$JS.API.DIRECT.GET.{NAMES.ev}", BARRIER)
        await judge.client.flush()
        return list(heard), answers, before, await log_state(judge)


@pytest.fixture(autouse=True)
def no_log_of_refusals(caplog: pytest.LogCaptureFixture) -> None:
    """The server refuses thousands of messages of an attack, and the client would log each."""
    caplog.set_level(logging.CRITICAL, "koordcore.bus")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@pytest.mark.parametrize("manifest", CONFINED, ids=lambda manifest: manifest.name)
async def test_a_key_writes_deletes_and_reads_nothing_else(
    guarded: Guarded, manifest: ServiceManifest, attack: Attack
) -> None:
    await nothing_else_happens(guarded, manifest, attack)


@pytest.mark.deep
@pytest.mark.parametrize("manifest", CONFINED, ids=lambda manifest: manifest.name)
async def test_nor_does_it_where_the_streams_are_on_other_servers_than_the_attacker(
    cluster: GuardedCluster, manifest: ServiceManifest
) -> None:
    for cluster.at in range(3):
        await nothing_else_happens(cluster, manifest, by_reply)


@pytest.fixture(scope="module")
def cluster() -> Iterator[GuardedCluster]:
    with server_directory() as directory:
        found = GuardedCluster(directory, NAMES, USERS.values())
        run_now(found.start())
        try:
            yield found
        finally:
            run_now(found.kill())


async def nothing_else_happens(guarded: Guarded, manifest: ServiceManifest, attack: Attack) -> None:
    """Fail if an attack stores, deletes or reads something that the user has no right to."""
    heard, answers, before, after = await attacked(guarded, manifest, attack)
    own = reached_by(manifest, NAMES)

    def is_own(subject: str) -> bool:
        # The server publishes a fact of a node under these names, too.
        fact = subject.replace(NAMES.prefix("push"), NAMES.prefix("ev")).replace(
            NAMES.prefix("intake"), NAMES.prefix("ev")
        )
        return any(matches(right, each) for right in own for each in (subject, fact))

    assert [
        subject for subject in heard if not is_own(subject) and not any(matches(p, subject) for p in OF_THE_SERVER)
    ] == []
    assert after.configs == before.configs, "no stream was created, changed or deleted"
    assert after.consumers == before.consumers, "no consumer was created or deleted"
    changed = {
        key for key in {*before.subjects, *after.subjects} if before.subjects.get(key) != after.subjects.get(key)
    }
    of_others = [key for key in sorted(changed) if not is_own(key[1]) and not may_purge(own, key[0])]
    assert of_others == [], "no message of another was added or deleted"
    if not reads_everything(manifest):
        secret = (SECRET, base64.b64encode(SECRET))
        assert [answer for answer in answers if any(each in answer for each in secret)] == []


def may_purge(own: tuple[str, ...], stream: str) -> bool:
    return any(matches(right, f"$JS.API.STREAM.PURGE.{stream}") for right in own)


def reads_everything(manifest: ServiceManifest) -> bool:
    return "ev" in manifest.follows


PUSHED = f"{NAMES.prefix('push')}node.n2"
FACT_OF_N2 = f"{NAMES.prefix('ev')}node.n2"
# Stored on a subject that the attacker may read. The server adds the true names to an answer, after these.
FALSE_HEADERS = (
    b"",
    f"Nats-Stream: {NAMES.ev}\r\nNats-Subject: {FACT_OF_N2}\r\nNats-Sequence: 9\r\n".encode(),
    f"NATS-SUBJECT: {FACT_OF_N2}\r\nNats-Stream: {NAMES.ev}\r\nX: ".encode(),
)


@pytest.mark.parametrize("header", FALSE_HEADERS)
async def test_an_agent_takes_no_answer_to_another_agent_for_a_push(guarded: Guarded, header: bytes) -> None:
    own = f"{NAMES.prefix('ev')}nodestate.n1"
    async with (
        guarded.connected(JUDGE) as judge,
        guarded.connected("agent-n1") as attacker,
        guarded.connected("agent-n2") as victim,
    ):
        raw: list[bytes] = []
        await victim.client.subscribe_sink(PUSHED, lambda _s, _r, _h, body: raw.append(body))
        feed = JetStreamPushFeed(victim, NAMES)
        pushes = feed.pushes(["n2"])
        assert await anext(pushes) is None
        stored: list[bytes] = []
        await judge.client.subscribe_sink("stored", lambda _s, _r, _h, body: stored.append(body))
        if header.endswith(b"X: "):  # without the two line ends after it, so that the next header joins this line
            judge.write(_without_end(own, "stored", header, b"forged"))
        else:
            judge.write(hpub(own, "stored", header, b"forged"))
        await until(lambda: stored)
        attacker.write(pub(f"$JS.API.DIRECT.GET.{NAMES.ev}.{own}", PUSHED, b""))
        await until(lambda: b"forged" in raw)
        async with guarded.bus("scheduler") as scheduler:
            before = await scheduler.events.last_of(AggregateRef("node", "n2"))
            event = sealed(
                "node", "n2", NodeResourcesReturned(pods=[]), 0 if before is None else before.seq, f"{header}"
            )
            assert isinstance(await scheduler.events.append([event]), Appended)
        push = await anext(pushes)
        assert push is not None
        assert (push.event.ref, push.event.event_id) == (AggregateRef("node", "n2"), event.event_id)
        assert feed.refused >= 1


def _without_end(subject: str, reply: str, header: bytes, body: bytes) -> bytes:
    lines = b"NATS/1.0\r\n" + header
    size = len(lines)
    command = f"HPUB {subject} {reply} {size} {size + len(body)}\r\n"
    return command.encode() + lines + body + b"\r\n"
