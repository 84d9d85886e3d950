"""One contract for every place that a lease can be kept in: memory, a real NATS server, an API server over HTTP.

Time is moved by hand, one clock per candidate, so that a process can be paused; the servers are real.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import ClassVar

import nats
import pytest
from koordcore.ports.leadership import Leadership, Term
from koordcore.service.clock import ManualClock, SystemClock
from koordcore.service.health import Health
from koordcore.service.http import HttpServer
from koordcore.service.leadership import (
    KvLeadership,
    LeaseConflict,
    LeaseElection,
    LeaseLeadership,
    LeaseRecord,
    LeaseStore,
    LeaseTimes,
    LeaseUnavailable,
    SeenLease,
    WrittenLease,
    unique_holder,
)
from koordcore.service.lease_kubernetes import KubernetesLeaseStore, ServiceAccountHttp
from koordcore.service.lease_kv import KvLeaseStore
from koordcore.service.lifecycle import Service
from koordcore.service.metrics import Metrics
from koordcore.service.settings import ServiceSettings
from koordcore.values.invalid import InvalidInput
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TIMES = LeaseTimes()  # 15 s, 10 s, 2 s
TAKE_OVER = TIMES.duration + 3 * TIMES.retry  # expiry, and the looks before and after it


# ---------------------------------------------------------------- where leases are kept


class MemoryLeaseStore:
    """A lease in memory; several candidates share one."""

    def __init__(self) -> None:
        self.seen = SeenLease(None, "0")
        self.revision = 0

    async def read(self) -> SeenLease:
        return self.seen

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        if version != self.seen.version:
            raise LeaseConflict(version)
        self.revision += 1
        self.seen = SeenLease(record, str(self.revision))
        return WrittenLease(str(self.revision), record.epoch)


class FakeApiServer:
    """The part of an API server that leases need, with the rules of resourceVersion as documented.

    POST of an existing name: 409 AlreadyExists. PUT with another resourceVersion than the stored: 409 Conflict.
    PUT or GET of an absent name: 404. Each write gets a new, greater resourceVersion. Wrong token: 401.
    """

    def __init__(self, token: str) -> None:
        self.token = token
        self.objects: dict[str, dict[str, dict[str, object]]] = {}
        self.revision = 100

    def routes(self) -> list[Route]:
        base = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        return [
            Route(base, self.create, methods=["POST"]),
            Route(base + "/{name}", self.get, methods=["GET"]),
            Route(base + "/{name}", self.replace, methods=["PUT"]),
        ]

    async def create(self, request: Request) -> Response:
        lease = await self._lease(request)
        if isinstance(lease, Response):
            return lease
        key = f"{request.path_params['namespace']}/{lease['metadata']['name']}"
        if lease["metadata"].get("resourceVersion"):
            return self._status(400, "resourceVersion must not be set on objects to be created")
        if key in self.objects:
            return self._status(409, "AlreadyExists")
        return self._store(key, lease, 201)

    async def get(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return self._status(401, "Unauthorized")
        lease = self.objects.get(f"{request.path_params['namespace']}/{request.path_params['name']}")
        return self._status(404, "NotFound") if lease is None else JSONResponse(lease)

    async def replace(self, request: Request) -> Response:
        lease = await self._lease(request)
        if isinstance(lease, Response):
            return lease
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        if key not in self.objects:
            return self._status(404, "NotFound")
        if lease["metadata"].get("resourceVersion") != self.objects[key]["metadata"]["resourceVersion"]:
            return self._status(409, "Conflict: the object has been modified")
        return self._store(key, lease, 200)

    async def _lease(self, request: Request) -> "dict[str, dict[str, object]] | Response":
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return self._status(401, "Unauthorized")
        lease = json.loads(await request.body())
        spec = lease["spec"]
        if lease["kind"] != "Lease" or lease["apiVersion"] != "coordination.k8s.io/v1":
            return self._status(400, "not a Lease")
        if spec.get("holderIdentity") == "" or int(spec["leaseDurationSeconds"]) <= 0 or spec["leaseTransitions"] < 0:
            return self._status(422, f"Invalid: {spec}")
        return lease

    def _store(self, key: str, lease: dict[str, dict[str, object]], status: int) -> Response:
        self.revision += 1
        lease["metadata"]["resourceVersion"] = str(self.revision)
        lease["metadata"].setdefault("uid", f"uid-{self.revision}")
        self.objects[key] = lease
        return JSONResponse(lease, status)

    def _status(self, code: int, message: str) -> Response:
        return JSONResponse({"kind": "Status", "status": "Failure", "code": code, "message": message}, code)


class ApiSettings(ServiceSettings):
    """Only to serve the API server."""

    service: ClassVar[str] = "apiserver"


@asynccontextmanager
async def api_server(token_file: Path) -> AsyncGenerator[tuple[FakeApiServer, str]]:
    token_file.write_text("t0ken\n")  # noqa: ASYNC240  one word
    api = FakeApiServer("t0ken")
    health = Health()
    http = HttpServer(
        ApiSettings.model_validate({}),
        service=Service("apiserver", health=health),
        health=health,
        metrics=Metrics("apiserver"),
        clock=SystemClock(),
    )
    http.routes.extend(api.routes())
    await http.start()
    try:
        yield api, http.url
    finally:
        await http.stop()


@asynccontextmanager
async def kv_bucket(url: str, name: str, *, limit_marker_ttl: float | None = None) -> AsyncGenerator[JetStreamContext]:
    # The library leaves the types of its options open, hence the remarks to the type checker.
    client = await nats.connect(url)  # pyright: ignore[reportUnknownMemberType]
    try:
        js = client.jetstream()  # pyright: ignore[reportUnknownMemberType]
        config = KeyValueConfig(bucket=name, history=1, limit_marker_ttl=limit_marker_ttl)
        await js.create_key_value(config)  # pyright: ignore[reportUnknownMemberType]
        yield js
        await js.delete_key_value(name)
    finally:
        await client.close()


NewStore = Callable[[], LeaseStore]


@pytest.fixture(params=["memory", pytest.param("kv", marks=pytest.mark.nats), "kubernetes"])
def kept_in(request: pytest.FixtureRequest) -> tuple[str, str]:
    """What keeps the lease, and its address. Not a coroutine: the server's own fixture runs a loop."""
    kind: str = request.param
    return kind, request.getfixturevalue("nats_url") if kind == "kv" else ""


@pytest.fixture
async def new_store(kept_in: tuple[str, str], tmp_path: Path) -> AsyncGenerator[NewStore]:
    """Makes stores of one lease, each as its own process would have it."""
    match kept_in:
        case ("memory", _):
            shared = MemoryLeaseStore()
            yield lambda: shared
        case ("kv", url):
            async with kv_bucket(url, "leader_contract") as js:
                yield lambda: KvLeaseStore(js, bucket="leader_contract", key="leader.demo", ttl_real_seconds=None)
        case _:
            async with api_server(tmp_path / "token") as (_, url):
                https: list[ServiceAccountHttp] = []

                def make() -> LeaseStore:
                    https.append(ServiceAccountHttp(url, ca_file=None, token_file=tmp_path / "token"))
                    return KubernetesLeaseStore(https[-1], namespace="koordinator-system", name="demo")

                yield make
                for http in https:
                    await http.close()


# ---------------------------------------------------------------- a world of candidates


class FaultyStore:
    """A store behind a network that can be cut, and that can lose answers."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.cut = False
        self.lose_next_answer = False
        self.in_flight = 0

    async def read(self) -> SeenLease:
        if self.cut:
            raise LeaseUnavailable("cut")
        self.in_flight += 1
        try:
            return await self.store.read()
        finally:
            self.in_flight -= 1

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        if self.cut:
            raise LeaseUnavailable("cut")
        self.in_flight += 1
        try:
            written = await self.store.write(record, version, acquiring=acquiring)
        finally:
            self.in_flight -= 1
        if self.lose_next_answer:
            self.lose_next_answer = False
            raise LeaseUnavailable("the answer was lost")
        return written


class Candidate:
    """A process: its election, its own clock, its network, and what it was told."""

    def __init__(self, name: str, store: LeaseStore, seed: int = 1) -> None:
        self.name = name
        self.clock = ManualClock()
        self.store = FaultyStore(store)
        self.paused = False
        self.told: list[tuple[str, int]] = []
        self.terms: list[Term] = []
        self.election = LeaseElection(self.store, holder=name, clock=self.clock, times=TIMES, jitter=Random(seed))
        self.election.subscribe(acquired=self._on_acquired, lost=self._on_lost)
        self.task = asyncio.create_task(self.election.campaign())
        self.behind = 0.0

    def _on_acquired(self, term: Term) -> None:
        self.told.append(("acquired", term.epoch))
        self.terms.append(term)

    def _on_lost(self, term: Term, reason: str) -> None:
        assert reason
        self.told.append(("lost", term.epoch))

    def resume(self) -> None:
        """Time was gone while the process did not run."""
        self.paused = False
        self.clock.jump(self.behind)
        self.behind = 0.0

    async def die(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


class World:
    """Candidates and the passing of time."""

    def __init__(self, new_store: NewStore) -> None:
        self.new_store = new_store
        self.candidates: list[Candidate] = []
        self.epochs: list[int] = []

    async def add(self, name: str) -> Candidate:
        candidate = Candidate(name, self.new_store(), seed=len(self.candidates))
        candidate.election.subscribe(acquired=lambda term: self.epochs.append(term.epoch))
        self.candidates.append(candidate)
        await self.settle()
        return candidate

    async def settle(self) -> None:
        """Until every candidate waits for its clock again."""
        for _ in range(5):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while any(c.store.in_flight for c in self.candidates if not c.paused):  # noqa: ASYNC110  counts, no event
                await asyncio.sleep(0.0005)
        for _ in range(5):
            await asyncio.sleep(0)
        self.check()

    async def pass_time(self, seconds: float, step: float = 0.5) -> None:
        left = seconds
        while left > 0:
            now = min(step, left)
            for candidate in self.candidates:
                if candidate.paused:
                    candidate.behind += now
                else:
                    await candidate.clock.advance(now, turns=3)
            await self.settle()
            left -= now

    def leaders(self) -> list[Candidate]:
        """Those who may act now: a paused process does not."""
        return [c for c in self.candidates if not c.paused and not c.task.done() and c.election.term is not None]

    def check(self) -> None:
        """Never two at once; epochs only grow."""
        assert len(self.leaders()) <= 1, [(c.name, c.election.term) for c in self.leaders()]
        assert self.epochs == sorted(set(self.epochs)), self.epochs

    async def end(self) -> None:
        for candidate in self.candidates:
            await candidate.die()


@pytest.fixture
async def world(new_store: NewStore) -> AsyncGenerator[World]:
    made = World(new_store)
    yield made
    await made.end()


# ---------------------------------------------------------------- the contract


async def test_the_first_candidate_leads_and_keeps_leading(world: World) -> None:
    first = await world.add("a")
    second = await world.add("b")
    assert world.leaders() == [first]
    term = first.election.term
    assert term is not None
    assert term.holder == "a"
    assert term.epoch >= 1
    await world.pass_time(60, step=1)
    assert first.election.term == term
    assert second.election.term is None
    assert second.election.holder == "a"
    assert (first.told, second.told) == ([("acquired", term.epoch)], [])


async def test_candidates_that_start_together_elect_one(world: World) -> None:
    for index in range(5):
        world.candidates.append(Candidate(f"c{index}", world.new_store(), seed=index))
    await world.settle()
    await world.pass_time(3)
    assert len(world.leaders()) == 1
    assert {c.election.holder for c in world.candidates} == {world.leaders()[0].name}


async def test_a_dead_leader_is_followed_after_its_lease_expired(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    await world.pass_time(3 * TIMES.retry)  # so that it has renewed
    await first.die()
    await world.pass_time(TIMES.duration - TIMES.retry - 0.5)
    assert world.leaders() == []
    await world.pass_time(TAKE_OVER - TIMES.duration + TIMES.retry + 0.5)
    assert world.leaders() == [second]
    assert second.terms[0].epoch > first.terms[0].epoch
    assert first.told[-1] == ("lost", first.terms[0].epoch)


async def test_a_graceful_release_hands_over_without_waiting_for_the_lease(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    await first.election.resign()
    assert first.told[-1][0] == "lost"
    await asyncio.wait_for(asyncio.shield(first.task), 5)  # the campaign ends by itself
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert world.leaders() == [second]
    assert second.terms[0].epoch > first.terms[0].epoch
    await first.election.campaign()  # after resigning it stands no more
    assert world.leaders() == [second]


async def test_a_paused_leader_has_lost_when_it_runs_again(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    await world.pass_time(3 * TIMES.retry)  # so that it has renewed
    term = first.terms[0]
    first.paused = True
    await world.pass_time(TAKE_OVER)
    assert world.leaders() == [second]
    first.resume()
    assert first.election.term is None  # at once, before its tasks ran
    await world.settle()
    assert await first.election.lost(term) == "not renewed for 10 s"
    await world.pass_time(20)
    assert world.leaders() == [second]
    assert first.told == [("acquired", term.epoch), ("lost", term.epoch)]


async def test_a_cut_off_leader_gives_up_before_anybody_takes_over(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    await world.pass_time(3 * TIMES.retry)  # so that it has renewed
    first.store.cut = True
    await world.pass_time(TIMES.renew_deadline + 0.5)
    assert world.leaders() == []
    assert first.told[-1][0] == "lost"
    await world.pass_time(TAKE_OVER - TIMES.renew_deadline)
    assert world.leaders() == [second]
    first.store.cut = False
    await world.pass_time(30, step=1)
    assert world.leaders() == [second]
    assert first.election.holder == "b"


async def test_a_short_cut_is_survived(world: World) -> None:
    first, _ = await world.add("a"), await world.add("b")
    term = first.election.term
    first.store.cut = True
    await world.pass_time(TIMES.renew_deadline - TIMES.retry - 1)
    first.store.cut = False
    await world.pass_time(20)
    assert first.election.term == term


async def test_a_lost_answer_to_a_renewal_does_not_end_the_term(world: World) -> None:
    first, _ = await world.add("a"), await world.add("b")
    term = first.election.term
    for _ in range(3):
        first.store.lose_next_answer = True
        await world.pass_time(3 * TIMES.retry)
        assert not first.store.lose_next_answer
    assert first.election.term == term


async def test_a_lost_answer_to_the_taking_is_noticed(world: World) -> None:
    first = Candidate("a", world.new_store())
    first.store.lose_next_answer = True
    world.candidates.append(first)
    await world.settle()
    assert first.election.term is None
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert world.leaders() == [first]


async def test_a_restarted_process_waits_like_anybody_else(world: World) -> None:
    first = await world.add(unique_holder("a"))
    await first.die()
    again = await world.add(unique_holder("a"))
    await world.pass_time(TIMES.duration - 1)
    assert world.leaders() == []
    await world.pass_time(TAKE_OVER - TIMES.duration + 1)
    assert world.leaders() == [again]


async def test_waiting_for_leadership_and_its_end(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    assert await first.election.acquired() == first.election.term
    waiting = asyncio.create_task(second.election.acquired())
    term = first.terms[0]
    ending = asyncio.create_task(first.election.lost(term))
    await first.election.resign()
    assert await ending == "resigned"
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert await waiting == second.election.term
    with pytest.raises(AssertionError):
        await second.election.lost(term)


async def test_any_faults_never_give_two_leaders(world: World, kept_in: tuple[str, str]) -> None:
    """Random walks through cuts, pauses, deaths, restarts and resignations; `World.check` looks after every half
    second.
    """
    chance = Random(7)
    for index in range(3):
        await world.add(f"c{index}")
    turns = 100 if kept_in[0] == "memory" else 16
    for turn in range(turns):
        for healing in world.candidates:
            if chance.random() < 0.5:
                healing.store.cut = False
                if healing.paused:
                    healing.resume()
        candidate = chance.choice(world.leaders() or world.candidates)
        match chance.randrange(6):
            case 0:
                candidate.store.cut = True
            case 1:
                candidate.paused = True
            case 2:
                candidate.store.lose_next_answer = True
            case 3 if not candidate.paused and not candidate.store.cut:
                await candidate.election.resign()
            case 4:
                await candidate.die()
            case _:
                pass
        if candidate.task.done():
            world.candidates.remove(candidate)
            await world.add(f"again-{turn}")
        await world.pass_time(chance.choice([0.5, 3.0, 12.0, 20.0]), step=1)
    for candidate in world.candidates:
        candidate.store.cut = False
        if candidate.paused:
            candidate.resume()
    await world.pass_time(TAKE_OVER)
    assert len(world.leaders()) == 1
    assert len(world.epochs) > turns / 10


# ---------------------------------------------------------------- what only one of them has


def test_the_elections_are_the_port() -> None:
    candidate: Leadership = LeaseElection(MemoryLeaseStore(), holder="a", clock=ManualClock())
    assert candidate.term is None
    assert candidate.holder is None


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
def test_durations_that_allow_two_leaders_are_refused(times: tuple[float, float, float]) -> None:
    duration, renew, retry = times
    with pytest.raises(InvalidInput, match="retry < renew deadline < lease duration"):
        LeaseTimes(duration=duration, renew_deadline=renew, retry=retry)


async def test_a_hanging_store_is_given_up_on_in_real_time() -> None:
    class Hanging(MemoryLeaseStore):
        async def read(self) -> SeenLease:
            await asyncio.Event().wait()
            raise AssertionError

    times = LeaseTimes(duration=0.3, renew_deadline=0.1, retry=0.01)
    candidate = LeaseElection(Hanging(), holder="a", clock=SystemClock(), times=times)
    campaign = asyncio.create_task(candidate.campaign())
    await asyncio.wait((campaign,), timeout=0.2)
    assert not campaign.done()
    campaign.cancel()
    await asyncio.wait((campaign,))


@pytest.mark.nats
async def test_kv_key_is_removed_by_its_time_to_live_and_the_epoch_still_grows(nats_url: str) -> None:
    async with kv_bucket(nats_url, "leader_ttl", limit_marker_ttl=1.0) as js:
        times = LeaseTimes(duration=1.0, renew_deadline=0.6, retry=0.1)

        def candidate(name: str) -> KvLeadership:
            return KvLeadership(
                js, bucket="leader_ttl", key="leader.demo", holder=name, clock=SystemClock(), times=times
            )

        first = candidate("a")
        campaign = asyncio.create_task(first.campaign())
        async with asyncio.timeout(10):
            before = await first.acquired()
        campaign.cancel()
        await asyncio.wait((campaign,))
        store = KvLeaseStore(js, bucket="leader_ttl", key="leader.demo", ttl_real_seconds=None)
        async with asyncio.timeout(10):
            while (await store.read()).record is not None:  # noqa: ASYNC110  the server's doing
                await asyncio.sleep(0.05)
        # A candidate that starts now has nobody to wait for.
        second = candidate("b")
        campaign = asyncio.create_task(second.campaign())
        async with asyncio.timeout(0.5):
            after = await second.acquired()
        assert after.epoch > before.epoch
        await second.resign()
        await campaign


@pytest.mark.nats
async def test_kv_bucket_without_time_to_live_and_missing_bucket(nats_url: str) -> None:
    async with kv_bucket(nats_url, "leader_plain") as js:
        store = KvLeaseStore(js, bucket="leader_plain", key="k", ttl_real_seconds=5)
        record = LeaseRecord(holder="a", epoch=1, acquired_at_unix=0, renewed_at_unix=0, duration_seconds=15)
        written = await store.write(record, "0", acquiring=True)
        assert written.epoch == int(written.version)
        with pytest.raises(LeaseConflict):
            await store.write(record, "0", acquiring=True)
        missing = KvLeaseStore(js, bucket="no_such_bucket", key="k", ttl_real_seconds=None)
        with pytest.raises(LeaseUnavailable):
            await missing.read()
        with pytest.raises(LeaseUnavailable):
            await missing.write(record, "0", acquiring=True)
        await js.publish("$KV.leader_plain.k", b"not a lease")
        with pytest.raises(LeaseUnavailable, match="something else"):
            await store.read()


async def test_lease_looks_as_users_of_kubernetes_expect(tmp_path: Path) -> None:
    async with api_server(tmp_path / "token") as (api, url):
        http = ServiceAccountHttp(url, ca_file=None, token_file=tmp_path / "token")
        candidate = LeaseLeadership(
            namespace="koordinator-system",
            name="koordinator-manager",
            holder="pod-1_ab",
            clock=SystemClock(),
            http=http,
        )
        campaign = asyncio.create_task(candidate.campaign())
        async with asyncio.timeout(10):
            term = await candidate.acquired()
        assert term.epoch == 1
        lease = api.objects["koordinator-system/koordinator-manager"]
        assert (lease["kind"], lease["apiVersion"]) == ("Lease", "coordination.k8s.io/v1")
        spec = lease["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("pod-1_ab", 15, 0)
        assert str(spec["renewTime"]).endswith("Z")
        lease["metadata"]["labels"] = {"kept": "yes"}
        await candidate.resign()
        await campaign
        assert "holderIdentity" not in api.objects["koordinator-system/koordinator-manager"]["spec"]
        await http.close()


async def test_lease_store_translates_what_the_api_server_says(tmp_path: Path) -> None:
    record = LeaseRecord(holder="a", epoch=1, acquired_at_unix=0, renewed_at_unix=0, duration_seconds=15)
    async with api_server(tmp_path / "token") as (api, url):
        http = ServiceAccountHttp(url, ca_file=None, token_file=tmp_path / "token")
        store = KubernetesLeaseStore(http, namespace="ns", name="demo")
        assert await store.read() == SeenLease(None, "")
        first = await store.write(record, "", acquiring=True)
        with pytest.raises(LeaseConflict, match="AlreadyExists"):
            await store.write(record, "", acquiring=True)
        await store.write(record, first.version, acquiring=False)
        with pytest.raises(LeaseConflict, match="Conflict"):
            await store.write(record, first.version, acquiring=False)
        api.objects["ns/demo"]["metadata"]["labels"] = {"kept": "yes"}
        await store.write(record, (await store.read()).version, acquiring=False)
        assert api.objects["ns/demo"]["metadata"]["labels"] == {"kept": "yes"}
        del api.objects["ns/demo"]
        with pytest.raises(LeaseConflict, match="NotFound"):
            await store.write(record, "5", acquiring=False)
        (tmp_path / "token").write_text("rotated")
        with pytest.raises(LeaseUnavailable, match="401"):
            await store.read()
        api.token = "rotated"
        assert (await store.read()).record is None
        await http.close()
    with pytest.raises(LeaseUnavailable):
        await store.read()


def test_outside_of_a_cluster_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(LeaseUnavailable, match="not in a cluster"):
        ServiceAccountHttp.in_cluster()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    ServiceAccountHttp.in_cluster()
