"""Tokens, restarts and leadership: who writes to the API server, and that nothing is written twice."""

import asyncio
from pathlib import Path

from koord_manager.shell.gateway.api import LeaseHttp, connect_api
from koordcore.bus.setup.tls_files import ensure_tls_files
from koordcore.ports.leadership import Term
from koordcore.service.clock import SystemClock
from koordcore.service.leader.lease_kubernetes import LeaseLeadership
from koordcore.state.aggregates import NodeSpecState
from support.kubernetes.apiserver import running_api_server
from support.kubernetes.authorization import User
from support.kubernetes.gateway_world import Interrupted, gateway_world, node, pod
from support.manual_clock import ManualClock
from support.until import DEADLINE_SECONDS


async def test_over_tls_with_a_token_that_is_replaced(tmp_path: Path) -> None:
    files = ensure_tls_files(tmp_path / "tls", now=SystemClock().now())
    async with running_api_server(tls=files) as server:
        server.users["first"] = User("koord-manager")
        async with gateway_world(tmp_path, begin=False) as world:
            world.server = server
            await world.begin(token="first")
            await server.apply(pod("a"))
            await world.mirrored("a")
            del server.users["first"]
            server.users["second"] = User("koord-manager")
            server.kubeconfig(tmp_path / "kubeconfig", token="second")
            await world.drop_watches("pods")
            await server.apply(pod("b"))
            await world.mirrored("b")
            await world.stop()


async def test_a_restart_writes_nothing_anew(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        for number in range(3):
            await world.server.apply(node(f"node-{number}"))
        await world.until(lambda: len(world.view.state.of_kind(NodeSpecState)) == 3 and world.gateway.is_idle)
        before = world.view.state.position
        await world.stop()
        await world.begin()
        await world.until(lambda: world.gateway.is_idle)

        assert world.view.state.position == before


async def test_of_two_instances_one_leads_by_the_lease_and_the_other_takes_over(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        clocks = {"first": ManualClock(), "second": ManualClock()}
        api = await connect_api(world.server.kubeconfig(tmp_path / "lease"), qps=0, burst=1)

        def candidate(name: str) -> LeaseLeadership:
            return LeaseLeadership(
                namespace="koordinator-system",
                name="koordinator-manager",
                holder=name,
                clock=clocks[name],
                http=LeaseHttp(api, seconds=DEADLINE_SECONDS),
            )

        first, second = candidate("first"), candidate("second")
        campaigns = [asyncio.create_task(first.campaign())]
        leader = await world.begin(leadership=first)
        await world.until(lambda: first.term is not None)
        campaigns.append(asyncio.create_task(second.campaign()))
        backup = await world.begin(leadership=second)
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        assert second.term is None
        assert backup.gateway.is_idle is False

        campaigns[0].cancel()  # the first one is cut off: it neither renews nor lets go
        await leader.stop()

        async def has_taken_over() -> bool:
            if clocks["second"].sleepers():  # not while it reads or writes the lease, which would take it too long
                await clocks["second"].advance(1.0)
            return second.term is not None

        await world.until(has_taken_over)
        await world.place(uid, "node-1")
        await world.until(lambda: world.node_of("a") == "node-1")
        assert second.term is not None
        assert second.term.epoch == 2
        for campaign in campaigns:
            campaign.cancel()
        await asyncio.gather(*campaigns, return_exceptions=True)
        await world.stop()
        await api.close()


async def test_who_no_longer_leads_sends_nothing_more_and_goes_on_in_its_next_term(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        leadership = Interrupted()
        await world.begin(leadership=leadership)
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.until(lambda: world.gateway.is_idle)
        leadership.term = None
        await world.place(uid, "node-1")
        await world.server.apply(pod("b"))
        await world.until(lambda: leadership.is_awaited)
        assert world.node_of("a") == ""
        assert world.spec(world.uid("b")) is None

        leadership.term = Term("test", 2, 0.0)
        await world.until(lambda: world.node_of("a") == "node-1")
        await world.mirrored("b")
