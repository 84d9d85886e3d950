"""The whole service over a log in memory: rounds become evictions on the log."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from koord_descheduler.compose import load_configuration
from koord_descheduler.cycle import Rounds
from koord_descheduler.domain.config.loading import decode
from koord_descheduler.domain.framework.plugin import SetSchedulable
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.effects import closed_nodes
from koord_descheduler.settings import DeschedulerSettings
from koord_descheduler.shell import drain_control
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import RoundEnded, RoundLimit
from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodEvicted, PodEvictionFailed
from koordcore.events.objects import NodeSpecChanged, PodSpecDeleted, PriorityClassObserved
from koordcore.protocol.objects import ObjectMeta, PriorityClass, node_from_json
from koordcore.stories.modifications import KINDS, AuditReader
from koordcore.values import codec
from structlog.testing import capture_logs
from support.descheduler.world import AT, World
from support.until import DEADLINE_SECONDS, until


def configuration(
    interval: str = "20ms",
    *,
    prove: bool = False,
    balance: dict[str, Any] | None = None,
    deschedule: str = "RemovePodsViolatingNodeTaints",
    **more: Any,
) -> bytes:
    balance = balance or {}
    plugins = {
        "balance": {"enabled": [{"name": name} for name in balance]},
        "deschedule": {"enabled": [{"name": deschedule}]},
        "evict": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
        "filter": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
    }
    entries = [{"name": name, "args": args} for name, args in balance.items()]
    document = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": interval,
        "profiles": [{"name": "p", "prove": prove, "plugins": plugins, "pluginConfig": entries}],
        **more,
    }
    return codec.encode(document)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.begin()
    return world


async def rounds_done(rounds: Rounds, more: int = 3) -> None:
    wanted = rounds.done + more
    await until(lambda: rounds.done >= wanted)


async def test_violating_pod_is_asked_to_leave_once(world: World) -> None:
    await world.pod("p", "a")
    await world.pod("q", "b")
    async with world.service(configuration()) as (_, rounds):
        await rounds_done(rounds)
    (request,) = await world.requests()
    assert (request.name, request.node, request.initiator, request.method) == ("p", "a", "descheduler", "evict")
    assert "RemovePodsViolatingNodeTaints" in request.message


async def test_proving_profile_moves_nothing_while_no_scheduler_answers_and_says_so_once(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration(prove=True), flags=("--log-level=warning",)) as (_, rounds):
        with capture_logs() as lines:
            await rounds_done(rounds)
    assert await world.requests() == []
    assert [line["reason"] for line in lines if line["event"] == "moves_not_proved"] == [
        "this log has no connection to a scheduler"
    ]


async def test_round_tells_its_classes_its_choices_and_the_limits_that_it_reached(world: World) -> None:
    for name in ("p", "q"):
        await world.pod(name, "a")
    thresholds = {"thresholds": {"pods": 1}, "targetThresholds": {"pods": 1}}
    settings = configuration(maxNoOfPodsToEvictPerNode=1, balance={"LowNodeUtilization": thresholds})
    async with world.service(settings) as (_, rounds):
        await rounds_done(rounds)
    first = await anext(aiter(world.bus.explanations.follow(0)))
    story = CATALOGUE.read(first[0])
    assert isinstance(story, RoundEnded)
    (found,) = story.classified
    assert (found.plugin, found.nodes, found.under, found.over) == ("LowNodeUtilization", 2, ["a", "b"], [])
    assert [(each.pod, each.node) for each in story.attempts] == [("d/p", "a"), ("d/q", "a")]
    assert story.results == {"success": 1, "maximum number of pods per node reached": 1}
    assert story.limits == [RoundLimit(name="maxNoOfPodsToEvictPerNode", reached_by=["a"])]


async def test_profile_whose_priority_class_is_missing_is_left_out_until_it_exists(world: World) -> None:
    await world.pod("p", "a")
    document = codec.decode(configuration(), dict[str, Any])
    (good,) = document["profiles"]
    plugins = {**good["plugins"], "deschedule": {"enabled": [{"name": "RemoveFailedPods"}]}}
    threshold = {"name": "DefaultEvictor", "args": {"priorityThreshold": {"name": "gone"}}}
    document["profiles"] = [{**good, "name": "bad", "plugins": plugins, "pluginConfig": [threshold]}, good]
    why = (
        "profiles[0].pluginConfig[DefaultEvictor].args.priorityThreshold.name:"
        " must be the name of a PriorityClass, got 'gone'"
    )

    async def faults() -> list[list[str]]:
        stories = [CATALOGUE.read(each) for each in await anext(aiter(world.bus.explanations.follow(0)))]
        return [story.faults for story in stories if isinstance(story, RoundEnded)]

    async def is_complete() -> bool:
        return not (await faults())[-1]

    async with world.service(codec.encode(document)) as (_, rounds):
        await rounds_done(rounds)
        assert [request.name for request in await world.requests()] == ["p"]
        assert await faults() == [[why]] * len(await faults())
        await world.write(
            AggregateRef("priorityclass", "gone"),
            PriorityClassObserved(object=PriorityClass(metadata=ObjectMeta(name="gone"), value=1000)),
        )
        await until(is_complete)


async def test_restarted_service_does_not_ask_again(world: World) -> None:
    await world.pod("p", "a")
    for _ in range(2):
        async with world.service(configuration()) as (_, rounds):
            await rounds_done(rounds)
    assert len(await world.requests()) == 1


async def test_pod_whose_eviction_failed_is_asked_again(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration()) as (_, rounds):
        await rounds_done(rounds)
        await world.answer("p", PodEvictionFailed(reason="BudgetExceeded"))
        await until(lambda: _is(world.requests, 2))
    assert [request.name for request in await world.requests()] == ["p", "p"]


async def test_pod_that_left_is_forgotten_and_a_new_one_is_seen(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration()) as (_, rounds):
        await rounds_done(rounds)
        await world.answer("p", PodEvicted())
        await world.write(AggregateRef("podspec", "u-p"), PodSpecDeleted(namespace="d", name="p"))
        await world.pod("n", "a")
        await until(lambda: _is(world.requests, 2))
    assert [request.name for request in await world.requests()] == ["p", "n"]


async def test_decision_that_the_log_never_takes_is_refused_and_the_rounds_go_on(world: World) -> None:
    for index in range(20):
        await world.pod(f"p-{index}", "a")
    world.log.max_payload = 2048
    async with world.service(configuration()) as (shell, rounds):
        await until(lambda: rounds.begun >= 3)
        assert await world.facts("descheduling") == []
        world.log.max_payload = 1 << 20
        await until(lambda: _is(world.requests, 20))
        assert not shell.service.stopping


async def test_rounds_of_a_cluster_that_is_too_small_are_told_once_until_a_round_was_possible(world: World) -> None:
    async def nodes(*ready: str) -> None:
        for name in ("a", "b"):
            status = {"conditions": [{"type": "Ready", "status": str(name in ready)}]}
            changed = node_from_json({"metadata": {"name": name}, "status": status})
            await world.write(AggregateRef("nodespec", name), NodeSpecChanged(object=changed))

    async def refused(rounds: Rounds, count: int) -> None:
        await until(lambda: len(told()) == count)
        begun = rounds.begun
        await until(lambda: rounds.begun > begun + 5)
        assert len(told()) == count

    def told() -> list[str]:
        return [str(line["reason"]) for line in lines if line["event"] == "round_refused"]

    await nodes("a")
    async with world.service(configuration(), flags=("--log-level=warning",)) as (_, rounds):
        with capture_logs() as lines:
            await refused(rounds, 1)
            await nodes()
            await refused(rounds, 2)
            await nodes("a", "b")
            await rounds_done(rounds)
            await nodes()
            await refused(rounds, 3)
    assert [reason.rpartition(" ")[2] for reason in told()] == ["1", "0", "0"]


async def test_dry_run_writes_nothing(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration(dryRun=True)) as (_, rounds):
        await rounds_done(rounds)
    assert await world.requests() == []


def in_dry_run(who: str) -> bytes:
    """A configuration in which the configuration, the MigrationController or a plugin is in dry run."""
    levels: list[dict[str, Any]] = [
        {"name": "x", "nodeSelector": {"matchLabels": {"tier": "x"}}},
        {"name": "y", "nodeSelector": {}},
    ]
    args: dict[str, Any] = {"evictionOrder": levels, "nodeFit": False, "autoCordon": True, "mode": "DrainNode"}
    document = codec.decode(
        configuration(dryRun=who == "configuration", balance={"CustomPriority": {**args, "dryRun": who == "plugin"}}),
        dict[str, Any],
    )
    (profile,) = document["profiles"]
    profile["plugins"]["deschedule"] = {"disabled": [{"name": "*"}]}
    if who == "MigrationController":
        profile["plugins"]["evict"]["enabled"] = [{"name": who}]
        profile["pluginConfig"].append({"name": who, "args": {"dryRun": True}})
    return codec.encode(document)


@pytest.mark.parametrize("who", ["configuration", "MigrationController", "plugin"])
async def test_each_dry_run_leaves_one_record_per_pod_and_changes_nothing(world: World, who: str) -> None:
    async def records() -> list[tuple[str, str, str]]:
        reader = AuditReader()
        read = [record for stored in await world.stored(*KINDS) for record in reader.read(stored)]
        return [(each.pod, each.plugin, each.action) for each in read if each.decision == "dry_run"]

    labelled = {"metadata": {"name": "a", "labels": {"tier": "x"}}, "status": {"allocatable": {"cpu": "4"}}}
    await world.write(AggregateRef("nodespec", "a"), NodeSpecChanged(object=node_from_json(labelled)))
    await world.pod("p", "a")
    async with world.service(in_dry_run(who)) as (shell, rounds):
        await rounds_done(rounds)
        assert await records() == [("p", "CustomPriority", "evict_request")]
        await world.pod("n", "a")
        await until(lambda: _is(records, 2))
        await rounds_done(rounds)
        by = {"action": "evict_request", "decision": "dry_run"}
        assert shell.metrics.registry.get_sample_value("descheduler_audit_records_total", by) == 2
    assert [pod for pod, _, _ in await records()] == ["p", "n"]
    assert await world.requests() == []
    assert world.changes == []
    stories = [CATALOGUE.read(each) for each in await anext(aiter(world.bus.explanations.follow(0)))]
    assert {name for story in stories if isinstance(story, RoundEnded) for name in story.results} == {"dry_run"}


async def test_a_round_with_drain_looks_at_new_drains_before_the_next_look_is_due(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 3600.0)
    async with world.service(configuration(deschedule="Drain")) as (_, rounds):
        await rounds_done(rounds)
        metadata = {"name": "dn", "uid": "uid-dn", "creationTimestamp": AT}
        await world.custom("DrainNode", {"kind": "DrainNode", "metadata": metadata, "spec": {"nodeName": "b"}})
        await until(lambda: world.facts("drain"))


async def test_interval_zero_is_one_round(world: World) -> None:
    async with world.service(configuration("0s")) as (_, rounds):
        await until(lambda: rounds.done == 1)
        await world.pod("p", "a")
        await rounds.runner.reached((await world.bus.events.head()).last_seq)
        assert rounds.done == 1
    assert await world.requests() == []


async def test_effective_configuration_and_metrics_are_served(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration()) as (shell, rounds):
        await rounds_done(rounds)
        await world.answer("p", PodEvicted())
        await rounds.runner.reached((await world.bus.events.head()).last_seq)
        async with httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client:
            shown = (await client.get("/configz")).json()
            metrics = (await client.get("/metrics")).text
            levels: list[int] = []
            for verbosity in ("4", "0"):
                assert (await client.put("/debug/flags/v", content=verbosity)).status_code == 200
                levels.append(logging.getLogger().level)
            refused = await client.put("/debug/flags/v", content="loud")
    assert levels == [logging.DEBUG, logging.INFO]
    assert (refused.status_code, "0 or greater" in refused.text) == (400, True)
    assert shown["profiles"][0]["plugins"]["evict"]["enabled"] == [{"name": "DefaultEvictor"}]
    by = 'namespace="d",node="a",result="success",strategy="RemovePodsViolatingNodeTaints"'
    assert f"descheduler_pods_evicted_total{{{by}}} 1.0" in metrics


def test_leader_election_of_the_file_gives_way_to_given_flags(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(configuration(leaderElection={"leaseDuration": "30s", "renewDeadline": "20s"}))
    settings = DeschedulerSettings.load([f"--config={file}", "--leader-elect-renew-deadline=9s"], {})
    merged = settings.with_leader_election(load_configuration(file, BUILT_IN))
    assert (merged.lease_duration, merged.lease_renew_deadline) == (30.0, 9.0)


def test_flags_of_koord_descheduler_are_accepted_by_their_names() -> None:
    words = """-v=4 --logtostderr --secure-port=10258 --address=0.0.0.0 --port=10251 --leader-elect=true
        --leader-elect-lease-duration=15s --leader-elect-renew-deadline=10s --leader-elect-retry-period=2s
        --leader-elect-resource-lock=leases --leader-elect-resource-name=koord-descheduler
        --leader-elect-resource-namespace=koordinator-system --feature-gates=DisablePVCReservation=true
        --tls-cert-file=c --tls-private-key-file=k --cert-dir=/d --tls-min-version=VersionTLS13 --client-ca-file=a
        --tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 --authentication-kubeconfig=/k
        --authentication-skip-lookup --authorization-kubeconfig=/k --authorization-always-allow-paths=/healthz,/livez
        --vmodule=a=1 --logging-format=text"""
    settings = DeschedulerSettings.load(words.split(), {})
    assert settings.plain_addresses == [("0.0.0.0", 10251)]
    assert (settings.lease_duration, settings.log_verbosity, settings.log_format) == (15.0, 4, "console")
    assert (settings.tls_min_version, str(settings.tls_cert_file)) == ("VersionTLS13", "c")
    idle = {spec.names[0] for spec in settings.given_idle_flags}
    assert {"logtostderr", "vmodule", "authentication-skip-lookup", "cert-dir", "client-ca-file"} < idle
    text = (Path(__file__).parents[3] / "docs" / "descheduling.md").read_text()
    for spec in DeschedulerSettings.idle_flags:
        assert f"--{spec.names[0]}`" in text
        assert spec.no_effect in text


def test_addresses_are_those_of_the_file_if_flags_or_the_file_ask_for_any(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"

    def addresses(*flags: str, **fields: Any) -> list[tuple[str, int]]:
        file.write_bytes(configuration(**fields))
        settings = DeschedulerSettings.load([f"--config={file}", *flags], {})
        return settings.plain_addresses_with(decode(file.read_bytes()), load_configuration(file, BUILT_IN))

    assert addresses() == []
    assert set(addresses("--port=9")) == {("0.0.0.0", 10251)}
    apart = addresses(healthzBindAddress="[::1]:1", metricsBindAddress="127.0.0.1:2")
    assert apart == [("127.0.0.1", 2), ("::1", 1)]
    assert DeschedulerSettings.load(["--port=9"], {}).plain_addresses == [("0.0.0.0", 9)]


async def _is(requests: Callable[[], Any], count: int) -> bool:
    return len(await requests()) == count


def test_node_is_closed_if_its_pods_leave_and_stays_as_it_is_if_one_may_not() -> None:
    def closed(*steps: tuple[str, bool]) -> list[str]:
        proposals = [SetSchedulable(node, schedulable, "CustomPriority") for node, schedulable in steps]
        return closed_nodes(proposals, {"a", "b"})

    assert closed(("a", False)) == ["a"]
    assert closed(("a", False), ("b", False), ("b", True)) == ["a"]
    assert closed(("c", False)) == [], "no pod leaves it"
