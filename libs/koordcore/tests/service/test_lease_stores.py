"""What only one place of leases has: its durations, its errors, how its lease looks."""

import asyncio
from pathlib import Path

import pytest
from koordcore.ports.leadership import Leadership
from koordcore.service.clock import SystemClock
from koordcore.service.leader.election import LeaseElection
from koordcore.service.leader.lease import (
    LeaseConflict,
    LeaseRecord,
    LeaseTimes,
    LeaseUnavailable,
    SeenLease,
    WrittenLease,
)
from koordcore.service.leader.lease_kubernetes import KubernetesLeaseStore, LeaseLeadership, ServiceAccountHttp
from koordcore.service.leader.lease_kv import KeyReleases, KvLeadership, KvLeaseStore
from koordcore.values.invalid import InvalidInput
from support.bus.plain_client import plain_client
from support.leases.candidates import Candidate
from support.leases.places import MemoryLeaseStore, api_server, kv_bucket
from support.manual_clock import ManualClock
from support.until import DEADLINE_SECONDS, until


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
    reads = 0

    class Hanging(MemoryLeaseStore):
        async def read(self) -> SeenLease:
            nonlocal reads
            reads += 1
            await asyncio.Event().wait()
            raise AssertionError

    times = LeaseTimes(duration=0.3, renew_deadline=0.1, retry=0.01)
    candidate = LeaseElection(Hanging(), holder="a", clock=SystemClock(), times=times)
    campaign = asyncio.create_task(candidate.campaign())
    await until(lambda: reads > 2)
    assert not campaign.done()
    campaign.cancel()
    await asyncio.wait((campaign,))


@pytest.mark.nats
async def test_kv_key_is_removed_by_its_time_to_live_and_the_epoch_still_grows(nats_url: str) -> None:
    async with kv_bucket(nats_url, "leader_ttl", limit_marker_ttl=1.0) as js:
        brief = LeaseTimes(duration=1.0, renew_deadline=0.6, retry=0.1)
        patient = LeaseTimes(duration=3600, renew_deadline=1800, retry=900)

        def candidate(name: str, times: LeaseTimes) -> KvLeadership:
            return KvLeadership(
                js, bucket="leader_ttl", key="leader.demo", holder=name, clock=SystemClock(), times=times
            )

        first = candidate("a", brief)
        campaign = asyncio.create_task(first.campaign())
        before = await asyncio.wait_for(first.acquired(), DEADLINE_SECONDS)
        campaign.cancel()
        await asyncio.wait((campaign,))
        store = KvLeaseStore(js, bucket="leader_ttl", key="leader.demo", ttl_real_seconds=None)

        async def is_removed() -> bool:
            return (await store.read()).record is None

        await until(is_removed)
        # A candidate that starts now has nobody to wait for: a wait would take an hour.
        second = candidate("b", patient)
        campaign = asyncio.create_task(second.campaign())
        after = await asyncio.wait_for(second.acquired(), DEADLINE_SECONDS)
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
        term = await asyncio.wait_for(candidate.acquired(), DEADLINE_SECONDS)
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


class LateReads:
    """A lease of which some reads still show what was read before."""

    def __init__(self, store: KvLeaseStore) -> None:
        self._store = store
        self._last: SeenLease | None = None
        self.late = 0

    async def read(self) -> SeenLease:
        if self.late and self._last is not None:
            self.late -= 1
            return self._last
        self._last = await self._store.read()
        return self._last

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        return await self._store.write(record, version, acquiring=acquiring)


@pytest.mark.nats
@pytest.mark.parametrize("late_reads", [0, 3])
async def test_a_candidate_hears_a_release_and_leads_without_waiting_for_its_next_read(
    nats_url: str, late_reads: int
) -> None:
    """Some reads may come before the release is stored, because the server passes it to subscribers meanwhile."""
    async with kv_bucket(nats_url, "leader_heard") as js, plain_client(nats_url) as client:

        def lease() -> KvLeaseStore:
            return KvLeaseStore(js, bucket="leader_heard", key="leader.demo", ttl_real_seconds=None)

        first = Candidate("a", lease())
        await until(lambda: first.election.term)
        store, waits = LateReads(lease()), list[None]()
        releases = KeyReleases(client, store, bucket="leader_heard", key="leader.demo")

        async def released() -> None:
            waits.append(None)
            await releases.next()

        second = Candidate("b", store, released=released)
        await until(lambda: len(waits) == 2)  # it has subscribed, and read the lease after it
        store.late = late_reads
        await first.election.resign()
        # The clock of the second one stands still, so it does not come to its next read.
        term = await until(lambda: second.election.term)
        assert term.epoch > first.terms[0].epoch
        assert store.late == 0
        await first.die()
        await second.die()


@pytest.mark.nats
async def test_a_release_before_the_subscription_is_found_by_a_read_after_it(nats_url: str) -> None:
    async with kv_bucket(nats_url, "leader_early") as js, plain_client(nats_url) as client:
        released = asyncio.Event()

        def store() -> KvLeaseStore:
            return KvLeaseStore(js, bucket="leader_early", key="leader.demo", ttl_real_seconds=None)

        releases = KeyReleases(client, store(), bucket="leader_early", key="leader.demo")

        async def subscribed_late() -> None:
            await released.wait()
            await releases.next()

        first = Candidate("a", store())
        await until(lambda: first.election.term)
        second = Candidate("b", store(), released=subscribed_late)
        await until(lambda: second.election.holder == "a")
        await first.election.resign()
        released.set()
        await until(lambda: second.election.term)
        await first.die()
        await second.die()


@pytest.mark.nats
async def test_a_release_that_cannot_be_heard_is_waited_for_without_an_error(nats_url: str) -> None:
    async with plain_client(nats_url) as client:
        pass
    store = MemoryLeaseStore()
    releases = KeyReleases(client, store, bucket="leader_deaf", key="leader.demo")
    hearing = asyncio.create_task(releases.next())
    await asyncio.wait((hearing,), timeout=0)
    await asyncio.wait((hearing,), timeout=0)
    assert not hearing.done()
    hearing.cancel()
    await asyncio.wait((hearing,))
    assert hearing.cancelled()
