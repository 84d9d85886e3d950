"""Every service can do its work under its own user, and nothing else.

The server runs with the users that are generated from the manifests.
"""

import asyncio
import base64
import hashlib
import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from koordcore.bus.adapters.logs import JetStreamEventLog
from koordcore.bus.client.connection import (
    BusConnection,
    ConnectionSettings,
    ConnectRefused,
    Denied,
    NoAnswer,
    TlsClientFiles,
)
from koordcore.bus.client.opening import connect
from koordcore.bus.client.wire import encode_headers
from koordcore.bus.factory import Bus
from koordcore.bus.names import BusNames
from koordcore.bus.read.direct import messages_of
from koordcore.bus.setup.bootstrap import Change, bootstrap, consumer_of
from koordcore.bus.setup.manifest import BOOTSTRAP, EMBEDDED, MANAGER, RETENTION, ServiceManifest, agent
from koordcore.bus.setup.streams import streams
from koordcore.bus.setup.tls_files import ensure_tls_files
from koordcore.bus.work.dlq import DeadLetters, ParkedItem
from koordcore.bus.work.effect_worker import PermanentFailure, Worker, WorkItem
from koordcore.bus.work.endpoints import EndpointServer, Refusal
from koordcore.bus.work.requests import RequestFailed, ask, submit
from koordcore.bus.write.own_facts import OwnFactLog
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig, NatsTls, NatsUser, ensure_user_key
from koordcore.events import CATALOGUE
from koordcore.events.admission import RequestAudited
from koordcore.events.cluster import TypicalPodsLearned
from koordcore.events.criproxy import ProxyFactsDropped
from koordcore.events.envelope import AggregateRef
from koordcore.events.explanations import DecisionAbandoned
from koordcore.events.log import EventSkipped
from koordcore.events.node_ledger import NodeResourcesReturned
from koordcore.events.nodestate import PodsStarted
from koordcore.events.objects import NodeSpecDeleted, PodSpecDeleted
from koordcore.events.observation import NodeUsageReported
from koordcore.events.pod import PodDeviceUnhealthy, PodReleased, UnhealthyDevice
from koordcore.ports.desired import DesiredNode
from koordcore.ports.eventlog import Appended, Conflict, Misconfigured
from koordcore.ports.snapshots import KEPT_SNAPSHOTS, Snapshot, state_digest
from koordcore.requests.catalogue import (
    DESCHEDULER_RUN_ROUND,
    PROJECTOR_STATE_HASH,
    SCHEDULER_FIT,
    StateHash,
    StateHashRequest,
)
from koordcore.requests.descheduling import RunRound
from koordcore.requests.endpoint import ErrorCode
from koordcore.requests.fit import FitAnswer, FitRequest
from koordcore.service.access.gate import AuditTrail
from koordcore.service.clock import SystemClock
from koordcore.service.leader import lease_kv
from koordcore.service.leader.lease import LeaseRecord, LeaseUnavailable
from koordcore.service.leader.lease_kv import KvLeaseStore, lease_key
from koordctl.access.folding import everything_kept
from support.bus.bus_worlds import SMALL, origin, sealed
from support.bus.guarded import JUDGE, Guarded
from support.bus.log_worlds import FAST
from support.servers import run_now, server_directory
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats

NAMES = BusNames("perm")
AN_HOUR = 3600.0  # a wait for a deadline would end with the timeout of pytest
UNUSED_KINDS = {"quotaspec", "gangspec", "reservationspec"}
"""Kinds of the specification that no event has: custom resources are of the kind `customspec`."""
SINGLE = agent("n1", name="agent-n1")
FOR_PROXY = agent("n2", name="agent-n2", for_proxy=True)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with server_directory() as directory:
        found = Guarded(directory, NAMES, (*EMBEDDED, SINGLE, FOR_PROXY))
        run_now(found.start())
        try:
            yield found
        finally:
            run_now(found.server.kill())


async def count_history(bus: Bus) -> int:
    head = await bus.events.head()
    return sum([len(batch) async for batch in bus.events.history(0, head.last_seq)])


def snapshot(fold: str) -> Snapshot:
    return Snapshot(
        fold=fold,
        seq=1,
        code_version="",
        schema_fingerprint="x",
        taken_at="",
        state=(b"s",),
        digest=state_digest([b"s"]),
    )


def test_seeds_are_readable_by_their_owner_only(guarded: Guarded):
    files = list(guarded.keys.iterdir())
    assert len(files) == len(EMBEDDED) + 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_the_manager_can_do_its_work(guarded: Guarded):
    async with guarded.bus("manager") as bus:
        event = sealed("podspec", "manager-1", PodSpecDeleted(namespace="d", name="p"), 0, "m1")
        assert isinstance(await bus.events.append([event]), Appended)
        assert isinstance(await bus.events.append([event]), Appended), "a lost acknowledgement is settled"
        other = sealed("podspec", "manager-1", PodSpecDeleted(namespace="d", name="q"), 0, "m2")
        assert isinstance(await bus.events.append([other]), Conflict)
        assert await count_history(bus) >= 1
        await bus.desired.put(DesiredNode(node="n1"))
        assert await bus.desired.get("n1") == DesiredNode(node="n1")
        await bus.observations.head()
        await bus.snapshots.save(snapshot("manager"))
        assert await bus.snapshots.newest("manager", schema_fingerprint="x") == snapshot("manager")


async def test_the_scheduler_can_place_and_explain(guarded: Guarded):
    async with guarded.bus("scheduler") as bus:
        batch = [
            sealed("pod", "u1", PodReleased(namespace="d", name="p", node="n", reason="deleted"), 0, "s1"),
            sealed("node", "s-n", NodeResourcesReturned(pods=["u1"]), 0, "s1"),
        ]
        assert isinstance(await bus.events.append(batch), Appended)
        learned = TypicalPodsLearned(pods=0, window_seconds=60, typical_pods=[])
        broken = [UnhealthyDevice(type="gpu", minor=0)]
        unhealthy = PodDeviceUnhealthy(namespace="d", name="q", node="n", devices=broken)
        for one in (sealed("gpuworkload", "default", learned), sealed("pod", "u2", unhealthy)):
            assert isinstance(await bus.events.append([one]), Appended)
        verdict = DecisionAbandoned(namespace="d", name="p", attempt=1, reason="r")
        await bus.explanations.publish(AggregateRef("pod", "u1"), verdict, origin("s2"))
        assert await count_history(bus) >= 2
        await bus.snapshots.save(snapshot("scheduler"))
    async with guarded.bus("projector") as bus:
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for found in bus.explanations.follow(0):
                assert found[0].ref == AggregateRef("pod", "u1")
                break
        assert await count_history(bus) >= 2


@pytest.mark.parametrize(("user", "node"), [("agent-n1", "n1"), ("agent", "sim-7")])
async def test_an_agent_can_report_enforce_and_listen(guarded: Guarded, user: str, node: str):
    report = NodeUsageReported(updated_at="", report_interval_seconds=60, aggregate_duration_seconds=300)
    async with (
        guarded.relaying(),
        guarded.bus("manager") as manager,
        guarded.bus("scheduler") as scheduler,
        guarded.bus(user) as bus,
    ):
        await manager.desired.put(DesiredNode(node=node))
        assert await bus.desired.get(node) == DesiredNode(node=node)
        feed = bus.pushes.pushes([node])
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await anext(feed) is None
            event = sealed("node", node, NodeResourcesReturned(pods=[]), 0, f"push-{node}")
            assert isinstance(await scheduler.events.append([event]), Appended)
            push = await anext(feed)
        assert push is not None
        await bus.observations.publish(AggregateRef("node", node), report, origin(user))
        assert bus.connection is not None
        own = OwnFactLog(bus.connection, NAMES)
        of_ledger = await own.last_of(AggregateRef("node", node))
        assert of_ledger is not None
        assert (of_ledger.seq, of_ledger.expected_last) == (push.event.seq, push.last_seq)
        first = await own.append([sealed("nodestate", node, PodsStarted(pods=[]), 0, f"{user}-1")])
        assert isinstance(first, Appended)
        again = await own.append([sealed("nodestate", node, PodsStarted(pods=["x"]), first.last_seq, f"{user}-2")])
        assert isinstance(again, Appended)
        newest = await own.last_of(AggregateRef("nodestate", node))
        assert newest is not None
        assert newest.seq == again.last_seq
        (found,) = await manager.observations.latest([AggregateRef("node", node)])
        assert found.ref.id == node


@pytest.mark.parametrize(("user", "node"), [("criproxy", "n1"), ("agent-n2", "n2")])
async def test_a_cri_proxy_or_the_agent_for_it_writes_and_reads_its_own_aggregate(
    guarded: Guarded, user: str, node: str
):
    async with guarded.relaying(), guarded.connected(user) as connection:
        own = OwnFactLog(connection, NAMES)
        told = await own.append([sealed("criproxy", node, ProxyFactsDropped(facts=1), 0, user)])
        assert isinstance(told, Appended)
        newest = await own.last_of(AggregateRef("criproxy", node))
        assert newest is not None
        assert newest.seq == told.last_seq


async def test_the_operator_can_record_a_skip(guarded: Guarded):
    async with guarded.bus("operator") as bus:
        skip = EventSkipped(seq=1, reason="r", operator="o")
        assert isinstance(await bus.events.append([sealed("fold", "projector", skip, 0, "op")]), Appended)
        assert await count_history(bus) >= 1


async def test_the_operator_asks_the_projector_and_others_may_not(guarded: Guarded):
    async def state_hash(_: StateHashRequest) -> StateHash:
        return StateHash(7, "abc")

    async with guarded.connected("projector") as projector, guarded.connected("operator") as operator:
        server = EndpointServer(projector, NAMES)
        server.serve(PROJECTOR_STATE_HASH, state_hash)
        running = asyncio.create_task(server.run())
        try:
            answer = await ask(operator, NAMES, PROJECTOR_STATE_HASH, StateHashRequest(), seconds=DEADLINE_SECONDS)
            assert answer == StateHash(7, "abc")
            async with guarded.connected("agent-n1") as agent_connection:
                with pytest.raises(Denied):
                    await ask(
                        agent_connection, NAMES, PROJECTOR_STATE_HASH, StateHashRequest(), seconds=DEADLINE_SECONDS
                    )
        finally:
            running.cancel()
            await asyncio.wait((running,))


async def test_who_asked_the_scheduler_is_in_the_audit_and_services_leave_no_record(guarded: Guarded):
    async def fit(request: FitRequest) -> FitAnswer:
        if not request.leaving:
            raise Refusal(ErrorCode.INVALID, "nothing was asked")
        return FitAnswer(sets=[], position=1, observed=0)

    trail = AuditTrail("scheduler", "scheduler/s1", SystemClock())
    async with guarded.bus("scheduler") as bus:
        trail.publish_to(bus.audit)
        assert bus.connection is not None
        server = EndpointServer(bus.connection, NAMES, audit=trail.record)
        server.serve(SCHEDULER_FIT, fit)
        running = asyncio.create_task(server.run())
        try:
            async with guarded.connected("descheduler") as asking:
                await ask(asking, NAMES, SCHEDULER_FIT, FitRequest(leaving=["x"]), seconds=DEADLINE_SECONDS)
            async with guarded.connected("operator") as asking:
                await ask(asking, NAMES, SCHEDULER_FIT, FitRequest(leaving=["x"]), seconds=DEADLINE_SECONDS)
                with pytest.raises(RequestFailed):
                    await ask(asking, NAMES, SCHEDULER_FIT, FitRequest(), seconds=DEADLINE_SECONDS)
        finally:
            running.cancel()
            await asyncio.wait((running,))
    async with guarded.bus("auditor") as bus:

        async def both_are_kept() -> bool:
            return (await bus.audit.head()).last_seq >= 2

        await until(both_are_kept)
        records = [CATALOGUE.read(stored) for stored in await everything_kept(bus.audit)]
    asked = RequestAudited(subject="bus:operator", method="ask", route="scheduler.fit", dry_run=True, status=200)
    assert records == [asked, msgspec.structs.replace(asked, status=400)]


async def test_an_agent_writes_and_reads_no_audit_record(guarded: Guarded):
    record = RequestAudited(subject="bus:operator", method="ask", route="x", status=200)
    async with guarded.bus("agent-n1") as bus:
        with pytest.raises(Denied):
            await bus.audit.head()
        await bus.audit.publish(AggregateRef("request", "scheduler"), record, origin("agent"))
        assert bus.connection is not None
        await bus.connection.client.flush()
    async with guarded.bus("operator") as bus:
        kept = [CATALOGUE.read(stored) for stored in await everything_kept(bus.audit)]
    assert record not in kept


async def test_the_operator_and_the_descheduler_ask_the_scheduler_and_others_may_not(guarded: Guarded):
    async def fit(request: FitRequest) -> FitAnswer:
        return FitAnswer(sets=[], position=len(request.leaving), observed=0)

    async with guarded.connected("scheduler") as scheduler:
        for as_standby in (False, True):
            server = EndpointServer(scheduler, NAMES)
            server.serve(SCHEDULER_FIT, fit, as_standby=as_standby)
            running = asyncio.create_task(server.run())
            try:
                for user in ("operator", "descheduler"):
                    async with guarded.connected(user) as asking:
                        answer = await ask(
                            asking, NAMES, SCHEDULER_FIT, FitRequest(leaving=["x"]), seconds=DEADLINE_SECONDS
                        )
                        assert answer.position == 1
                for user in ("agent-n1", "manager", "projector"):
                    async with guarded.connected(user) as other:
                        with pytest.raises(Denied):
                            await ask(other, NAMES, SCHEDULER_FIT, FitRequest(), seconds=DEADLINE_SECONDS)
            finally:
                running.cancel()
                await asyncio.wait((running,))


async def test_the_operator_reads_snapshots_that_others_keep(guarded: Guarded):
    async with guarded.bus("manager") as bus:
        await bus.snapshots.save(snapshot("recommender"))
    async with guarded.bus("operator") as bus:
        assert await bus.snapshots.sequences("recommender") == [1]
        assert await bus.snapshots.newest("recommender", schema_fingerprint="x") == snapshot("recommender")
    for subject in (f"$O.{NAMES.snapshot_bucket}.C.x", f"$JS.API.STREAM.PURGE.{NAMES.snapshots}"):
        async with guarded.connected("operator") as connection:
            with pytest.raises(Denied):
                await connection.request(subject, b"{}", timeout=DEADLINE_SECONDS)


async def test_a_service_drops_its_old_snapshots_without_the_right_to_purge(guarded: Guarded) -> None:
    """No service may purge a stream of snapshots."""
    async with guarded.bus("scheduler") as bus:
        await bus.snapshots.save(snapshot("scheduler"))
    async with guarded.bus("manager") as bus:
        others = await bus.snapshots.sequences("recommender")  # of another test
        for seq in range(1, KEPT_SNAPSHOTS + 3):
            state = (b"x" * 300_000, str(seq).encode())
            await bus.snapshots.save(msgspec.structs.replace(snapshot("manager"), seq=seq, state=state))
        again = msgspec.structs.replace(snapshot("manager"), seq=KEPT_SNAPSHOTS + 2, state=(b"again",))
        await bus.snapshots.save(again)
        assert await bus.snapshots.sequences("manager") == list(range(3, KEPT_SNAPSHOTS + 3))
        assert await bus.snapshots.sequences("scheduler") == [1]
    async with guarded.connected("operator") as connection:
        subject = f"$O.{NAMES.snapshot_bucket_of('manager')}.C.>"
        stream = NAMES.snapshots_of("manager")
        pieces = [message async for message in messages_of(connection, stream, subject)]
    kept = {message.headers["Nats-Subject"] for message in pieces if message.data}
    emptied = {message.headers["Nats-Subject"] for message in pieces if not message.data}
    assert len(kept) == KEPT_SNAPSHOTS + len(others)
    assert len(emptied) >= 3, "two are older than the newest, and one was stored again"
    assert not kept & emptied


async def test_a_snapshot_of_another_service_does_not_count(guarded: Guarded) -> None:
    forged = msgspec.structs.replace(snapshot("scheduler"), seq=99, state=(b"forged",))
    async with guarded.bus("scheduler") as scheduler, guarded.bus("descheduler") as other:
        await scheduler.snapshots.save(snapshot("scheduler"))
        await other.snapshots.save(forged)  # in the store of the descheduler
        assert await scheduler.snapshots.newest("scheduler", schema_fingerprint="x") == snapshot("scheduler")
        assert await scheduler.snapshots.sequences("scheduler") == [1]
    of_others = (NAMES.snapshot_bucket_of("manager"), NAMES.snapshot_bucket_of("scheduler"))
    for bucket in (*NAMES.earlier_snapshot_buckets, *of_others):
        async with guarded.connected("descheduler") as connection:
            with pytest.raises(Denied):
                await connection.request(f"$O.{bucket}.M.x", b"{}", timeout=DEADLINE_SECONDS)


async def test_a_service_that_empties_its_own_snapshots_deletes_none_of_others(guarded: Guarded) -> None:
    """`Nats-Rollup: all` on one subject deletes all other messages of its stream."""
    saved = msgspec.structs.replace(snapshot("manager"), seq=99)
    async with guarded.bus("manager") as bus, guarded.connected("scheduler") as attacker:
        await bus.snapshots.save(saved)
        before = await bus.snapshots.sequences("manager")
        own = f"$O.{NAMES.snapshot_bucket_of('scheduler')}.M.x"
        answer = await attacker.request(own, b"{}", header=encode_headers({"Nats-Rollup": "all"}))
        assert "error" not in json.loads(answer.data)
        assert await bus.snapshots.sequences("manager") == before
        assert await bus.snapshots.newest("manager", schema_fingerprint="x") == saved


async def keep_as_an_earlier_release(judge: BusConnection, names: BusNames, kept: Snapshot, bucket: str) -> None:
    """Store a snapshot in the stream that all services had in common, under a token of this stream."""
    piece = msgspec.msgpack.encode(kept)
    digest = base64.urlsafe_b64encode(hashlib.sha256(piece).digest()).decode()
    name = f"{kept.fold}/{kept.seq}"
    entry = {"name": name, "nuid": "n", "size": len(piece), "chunks": 1, "digest": f"SHA-256={digest}"}
    for subject, body in ((f"$O.{bucket}.C.n", piece), (f"$O.{bucket}.M.{name}", json.dumps(entry).encode())):
        answer = json.loads((await judge.request(subject, body)).data)
        assert answer["stream"] == names.snapshots


@pytest.mark.parametrize("bucket", [NAMES.snapshot_bucket, f"{NAMES.snapshot_bucket}_manager"])
async def test_a_snapshot_of_an_earlier_release_is_used_until_there_is_a_newer_one(
    guarded: Guarded, bucket: str
) -> None:
    old = msgspec.structs.replace(snapshot("recommender"), seq=7 if bucket == NAMES.snapshot_bucket else 9)
    async with guarded.connected(JUDGE) as judge, guarded.bus("manager") as bus:
        await keep_as_an_earlier_release(judge, NAMES, old, bucket)
        assert await bus.snapshots.newest("recommender", schema_fingerprint="x") == old
        newer = msgspec.structs.replace(old, seq=old.seq + 1)
        await bus.snapshots.save(newer)
        assert await bus.snapshots.newest("recommender", schema_fingerprint="x") == newer


async def test_a_service_begins_with_the_streams_and_rights_of_the_release_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = BusNames("before")
    old = msgspec.structs.replace(snapshot("manager"), seq=7)
    newer = msgspec.structs.replace(old, seq=8)
    specs = streams(names, replicas=1, sizes=SMALL)
    of_services = [stream for stream in names.with_snapshots if stream != names.snapshots]

    def is_of_before(subject: str) -> bool:
        return "koord_saved_" not in subject

    def rights_of_before(user: NatsUser) -> NatsUser:
        publish = tuple(filter(is_of_before, user.permissions.publish_allow))
        return replace(user, permissions=replace(user.permissions, publish_allow=publish))

    with server_directory() as directory:
        server = Guarded(directory, names, (BOOTSTRAP, MANAGER))
        await server.start()
        now = server.server.config
        before = replace(
            now,
            users=tuple(rights_of_before(user) for user in now.users),
            shares=tuple(share for share in now.shares if is_of_before(share.subject)),
        )
        try:
            async with server.connected(JUDGE) as judge:
                for stream in of_services:
                    await judge.request(f"$JS.API.STREAM.DELETE.{stream}", b"")
                await keep_as_an_earlier_release(judge, names, old, f"{names.snapshot_bucket}_manager")
            async with server.bus("manager") as bus:

                async def is_told(*, denied: bool) -> bool:
                    """Read the snapshot, and return whether the servers refused to show other streams."""
                    caplog.clear()
                    try:
                        assert await bus.snapshots.newest("manager", schema_fingerprint="x") == old
                    except NoAnswer:  # the server is reading its configuration
                        return False
                    return ("snapshots_not_readable" in caplog.text) is denied

                server.reload(before)
                await until(lambda: is_told(denied=True))
                server.reload(now)
                await until(lambda: is_told(denied=False))
                with pytest.raises(NoAnswer):
                    await bus.snapshots.save(newer)
                async with server.connected(BOOTSTRAP.name) as bootstrapping:
                    done = await bootstrap(bootstrapping, specs)
                assert [name for name, change in done.items() if change is not Change.UNCHANGED] == of_services
                await bus.snapshots.save(newer)
                assert await bus.snapshots.newest("manager", schema_fingerprint="x") == newer
                assert await bus.snapshots.sequences("manager") == [7, 8]
        finally:
            await server.kill()


async def test_the_descheduler_works_on_requests_of_the_operator_who_handles_what_failed(guarded: Guarded) -> None:
    done: list[str] = []

    async def handle(item: WorkItem) -> None:
        done.append(item.id)
        if len(done) == 1:
            raise PermanentFailure("not possible")

    spec = consumer_of(DESCHEDULER_RUN_ROUND, NAMES)
    async with guarded.connected("descheduler") as working, guarded.connected("operator") as operator:
        letters = DeadLetters(operator, NAMES, follower=FAST)
        async with Worker(working, spec, handle, DeadLetters(working, NAMES, follower=FAST)):
            await submit(operator, NAMES, DESCHEDULER_RUN_ROUND, RunRound(), seconds=DEADLINE_SECONDS)

            async def parked() -> list[ParkedItem]:
                return list(await letters.list())

            (failed,) = await until(parked)
            assert "not possible" in failed.parked.error
            await letters.retry(failed.number)
            await until(lambda: len(done) == 2)
        assert await parked() == []


async def test_the_operator_sees_who_leads_and_cannot_take_a_lease(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = LeaseRecord(holder="s_1", epoch=0, acquired_at_unix=1.0, renewed_at_unix=1.0, duration_seconds=15.0)
    async with guarded.connected("scheduler") as leader, guarded.connected("operator") as operator:
        with monkeypatch.context() as patched:
            patched.setattr(lease_kv, "_PUBLISH_REAL_SECONDS", DEADLINE_SECONDS)
            written = await _leases(leader).write(lease, "0", acquiring=True)
        seen = await _leases(operator).read()
        assert seen.record is not None
        assert (seen.record.holder, seen.version) == ("s_1", written.version)
        with pytest.raises(LeaseUnavailable):
            await _leases(operator).write(lease, seen.version, acquiring=True)
        assert (await _leases(operator).read()).version == seen.version


def _leases(connection: BusConnection) -> KvLeaseStore:
    js = connection.client.jetstream(prefix=connection.api_prefix, timeout=DEADLINE_SECONDS)  # pyright: ignore[reportUnknownMemberType]  untyped keyword options
    return KvLeaseStore(js, bucket=NAMES.leader_bucket, key=lease_key("scheduler"), ttl_real_seconds=None)


@pytest.mark.parametrize(
    ("user", "kind", "event"),
    [
        ("scheduler", "podspec", PodSpecDeleted(namespace="d", name="p")),
        ("scheduler", "nodestate", PodsStarted(pods=[])),
        ("manager", "pod", PodReleased(namespace="d", name="p", node="n", reason="deleted")),
        ("projector", "node", NodeResourcesReturned(pods=[])),
        ("operator", "nodespec", NodeSpecDeleted(name="n")),
        ("agent-n1", "nodestate", PodsStarted(pods=[])),
        ("agent-n1", "criproxy", ProxyFactsDropped(facts=1)),
        ("agent-n2", "criproxy", ProxyFactsDropped(facts=1)),
        ("criproxy", "nodestate", PodsStarted(pods=[])),
    ],
)
async def test_a_fact_of_another_writer_is_refused_before_any_deadline(
    guarded: Guarded, user: str, kind: str, event: object
):
    async with guarded.connected(user) as connection:
        log = JetStreamEventLog(connection, NAMES, publish_seconds=AN_HOUR)
        with pytest.raises(Misconfigured, match="permission denied"):
            await log.append([sealed(kind, "someone-elses", event, 0, user)], deadline=AN_HOUR)  # type: ignore[arg-type]
    async with guarded.bus("auditor") as auditor:
        head = await auditor.events.head()
        found = [e.ref async for batch in auditor.events.history(0, head.last_seq) for e in batch]
        assert AggregateRef(kind, "someone-elses") not in found


@pytest.mark.parametrize("manifest", [*EMBEDDED, SINGLE, FOR_PROXY], ids=lambda manifest: manifest.name)
async def test_a_user_appends_only_the_kinds_of_its_manifest(guarded: Guarded, manifest: ServiceManifest):
    own = {*manifest.appends, *manifest.takes_in, *(["nodestate"] if manifest.agent_nodes else ())}
    own |= {"criproxy"} if manifest.proxy_nodes else set()
    kinds = {entry.kind for entry in CATALOGUE if entry.stream == "ev"}
    assert own <= kinds | UNUSED_KINDS
    async with guarded.connected(manifest.name) as connection:
        for kind in sorted(kinds - own):
            with pytest.raises(Denied):
                await connection.request(f"{NAMES.prefix('ev')}{kind}.n1", b"{}", timeout=AN_HOUR)


@pytest.mark.parametrize(
    "subject",
    [
        f"$JS.API.DIRECT.GET.{NAMES.ev}.koord.perm.ev.podspec.p",
        f"$JS.API.DIRECT.GET.{NAMES.ev}.koord.perm.ev.node.n2",
        f"$JS.API.DIRECT.GET.{NAMES.ev}",
        f"$JS.API.STREAM.MSG.GET.{NAMES.ev}",
        f"$JS.API.CONSUMER.CREATE.{NAMES.ev}.mine",
        f"$JS.API.CONSUMER.CREATE.{NAMES.explanations}.mine",
        f"$JS.API.CONSUMER.CREATE.{NAMES.audit}.mine",
        f"$JS.API.DIRECT.GET.{NAMES.desired}.{NAMES.desired_subject('n2')}",
        f"$JS.API.STREAM.MSG.GET.{NAMES.desired}",
        NAMES.desired_subject("n1"),
        "koord.perm.obs.node.n2",
        "koord.perm.req.manager.change_objects",
        "koord.perm.cmd.descheduler.drain",
    ],
)
async def test_an_agent_asks_for_nothing_but_its_node(guarded: Guarded, subject: str):
    async with guarded.connected("agent-n1") as connection:
        with pytest.raises(Denied):
            await connection.request(subject, b"{}", timeout=AN_HOUR)


PURGE = f"$JS.API.STREAM.PURGE.{NAMES.ev}"
FORBIDDEN = [
    (manifest.name, subject)
    for manifest in EMBEDDED
    for subject in (
        PURGE,
        f"$JS.API.STREAM.PURGE.{NAMES.snapshots}",
        f"$JS.API.STREAM.PURGE.{NAMES.snapshots_of('manager')}",
        f"$JS.API.STREAM.DELETE.{NAMES.ev}",
        f"$JS.API.STREAM.UPDATE.{NAMES.ev}",
        f"$JS.API.STREAM.MSG.DELETE.{NAMES.ev}",
        "$JS.API.STREAM.NAMES",
        "koord.other.ev.pod.x",
    )
    if manifest is not BOOTSTRAP and not (manifest is RETENTION and subject == PURGE)
]


@pytest.mark.parametrize(("user", "subject"), FORBIDDEN)
async def test_nobody_changes_streams_or_other_clusters(guarded: Guarded, user: str, subject: str):
    async with guarded.connected(user) as connection:
        with pytest.raises(Denied):
            await connection.request(subject, b"{}", timeout=DEADLINE_SECONDS)


async def test_an_inbox_of_another_user_cannot_be_read(guarded: Guarded):
    async with guarded.connected("agent-n1") as connection:
        heard: list[bytes] = []

        def hear(_subject: bytes, _reply: bytes, _header: bytes, payload: bytes) -> None:
            heard.append(payload)

        await connection.client.subscribe_sink("_INBOX_manager.>", hear)
        async with guarded.bus("manager") as bus:
            await bus.events.head()
        with pytest.raises(Denied):  # a round trip after the subscription was refused
            await connection.request("koord.perm.ev.pod.x", timeout=DEADLINE_SECONDS)
        assert heard == []


async def test_a_server_is_reached_over_tls_and_only_with_its_own_authority(tmp_path: Path):
    files = ensure_tls_files(tmp_path / "ours", now=datetime.now(UTC))
    others = ensure_tls_files(tmp_path / "others", now=datetime.now(UTC))
    tls = NatsTls(certificate=files.server_certificate, key=files.server_key, ca=files.ca, verify_clients=True)
    async with NatsServer(NatsServerConfig(directory=tmp_path / "nats", sync_interval="1s", tls=tls)) as server:
        client = TlsClientFiles(ca=files.ca, certificate=files.client_certificate, key=files.client_key)
        connection = await connect(ConnectionSettings(urls=(server.url,), tls=client))
        assert connection.is_connected
        await connection.drain_and_close()
        stranger = TlsClientFiles(ca=others.ca, certificate=others.client_certificate, key=others.client_key)
        with pytest.raises(ConnectRefused, match="certificate"):
            await connect(ConnectionSettings(urls=(server.url,), tls=stranger, connect_seconds=DEADLINE_SECONDS))


async def test_a_wrong_key_fails_before_the_connection_times_out(guarded: Guarded, tmp_path: Path):
    stranger = ensure_user_key(tmp_path / "stranger.seed")
    settings = ConnectionSettings(urls=(guarded.server.url,), user="manager", connect_seconds=AN_HOUR)
    with pytest.raises(ConnectRefused, match=r"(?i)authorization"):
        await connect(replace(settings, nkey_seed_file=stranger.seed_file))
    with pytest.raises(ConnectRefused):
        await connect(settings)
