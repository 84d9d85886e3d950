"""Recorded decisions about nodes taken again: reports that are gone, colocation that was off, a node's own switch."""

import json
from collections.abc import Sequence

from koord_manager.cycle import run_cycle
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import GPU, PLUGINS
from koord_manager.domain.documents.apply import Target
from koord_manager.domain.what_if.nodes import NodeDecisions
from koord_manager.domain.what_if.recording import RecordedFlags
from koord_manager.domain.what_if.run import ManagerWhatIf
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin, StoredEvent
from support.manager.loops import CONFIG, NODE, Manager, pod, running

OFF = CONFIG.replace('"enable": true, "cpuReclaim', '"enable": false, "cpuReclaim')
SAME = {
    "colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 65}',
    "resource-threshold-config": '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota"}}',
}


class Story:
    """A manager over a log in memory, and the reports that it was given, as the log of reports has them."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.manager = Manager(self.log)
        self.reports: list[StoredEvent] = []

    async def report(self, cpu_milli: int) -> None:
        self.manager.report("n.1", cpu_milli=cpu_milli)
        report = self.manager.view.reports["n_1"]
        origin = Origin(causation_id="r", correlation_id="n.1", actor="agent/t", occurred_at=report.updated_at)
        ref = AggregateRef("node", "n_1")
        [new] = CATALOGUE.seal([Draft(ref, report, 0)], origin)
        self.reports.append(StoredEvent(len(self.reports) + 1, ref, new.headers, new.body))
        await run_cycle(self.manager.context, self.manager.policies)
        await self.manager.clock.advance(60)

    def events(self) -> list[StoredEvent]:
        return self.log.between(0, self.log.last_seq, None, self.log.last_seq)


async def told(config: str) -> Story:
    story = Story()
    async with running(story.manager):
        await story.manager.apply("\n---\n".join([config, NODE, pod("web", "4")]))
        for cpu_milli in (1500, 4000, 2500):
            await story.report(cpu_milli)
    return story


def again(
    events: Sequence[StoredEvent], reports: Sequence[StoredEvent], chosen: dict[str, str] | None, begin: int = 0
) -> NodeDecisions:
    return rerun(ManagerWhatIf(ManagerView(), reports, chosen=chosen), events, begin).nodes


def rerun(what_if: ManagerWhatIf, events: Sequence[StoredEvent], begin: int = 0) -> ManagerWhatIf:
    for stored in events[:begin]:
        what_if.before(stored)
    what_if.begin()
    for stored in events[begin:]:
        what_if.see(stored)
    what_if.end()
    return what_if


async def test_every_decision_is_repeated_from_any_beginning() -> None:
    story = await told(CONFIG)
    events = story.events()
    for begin in range(len(events) + 1):
        for chosen in (None, SAME):
            found = again(events, story.reports, chosen, begin)
            assert found.fates() == [], (begin, chosen)
            assert found.tally.recorded == found.tally.rerun == found.tally.same
    assert again(events, story.reports, None).tally.recorded == 6, "NodeSLO, ratios, how to measure, and three reports"


async def test_health_follows_the_recorded_signals_and_water_levels_follow_health() -> None:
    adjusting = {"enable": True, "intervalSeconds": 60}
    recorded = SAME | {"slo-adjust-config": json.dumps(adjusting)}
    story = Story()
    async with running(story.manager):
        config = CONFIG + f"  slo-adjust-config: '{json.dumps(adjusting)}'\n"
        await story.manager.apply("\n---\n".join([config, NODE, pod("web", "4")]))
        for cpu_milli in (9500, 9500, 9500, 1000, 1000, 1000, 1000, 1000):
            await story.report(cpu_milli)
    assert {stored.type for stored in story.events()} >= {"NodeHealthAssessed", "NodeSloRendered"}
    for begin in range(len(story.events())):
        for chosen in (None, recorded):
            found = again(story.events(), story.reports, chosen, begin)
            assert found.fates() == []
            assert found.tally.recorded == found.tally.rerun == found.tally.same

    steeper = SAME | {"slo-adjust-config": json.dumps({**adjusting, "stepDown": 10})}
    [fate] = again(story.events(), story.reports, steeper).fates()
    assert fate.recorded is not None
    assert fate.rerun is not None
    assert fate.recorded.health is not None
    assert fate.rerun.health is not None
    assert fate.rerun.health.offsets["cpu"] < fate.recorded.health.offsets["cpu"] < 0
    assert (fate.rerun.batch_cpu_milli or 0) < (fate.recorded.batch_cpu_milli or 0)


async def test_health_that_was_off_is_tried_on_the_reports_that_are_kept() -> None:
    story = Story()
    async with running(story.manager):
        await story.manager.apply("\n---\n".join([CONFIG, NODE, pod("web", "4")]))
        for cpu_milli in (9500, 9500, 9500):
            await story.report(cpu_milli)
    assert "NodeHealthAssessed" not in {stored.type for stored in story.events()}
    tried = SAME | {"slo-adjust-config": json.dumps({"enable": True, "intervalSeconds": 60})}
    found = again(story.events(), story.reports, tried, len(story.events()) - 1)
    [fate] = found.fates()
    assert fate.recorded is not None
    assert fate.recorded.health is None
    assert fate.rerun is not None
    assert fate.rerun.health is not None
    assert (fate.rerun.health.level, fate.rerun.health.offsets["cpu"]) == ("Critical", 3 * -5), "once for each report"
    assert fate.rerun.slo is not None
    assert fate.rerun.slo["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 65 - 15
    assert found.mass_abnormal is False


async def test_what_the_guard_said_is_repeated_and_follows_what_is_tried() -> None:
    adjusting = {"enable": True, "intervalSeconds": 60, "maxAbnormalRatio": 0}
    story = Story()
    async with running(story.manager):
        config = CONFIG + f"  slo-adjust-config: '{json.dumps(adjusting)}'\n"
        await story.manager.apply("\n---\n".join([config, NODE, pod("web", "4")]))
        for cpu_milli in (9500, 9500, 1000, 1000, 1000, 1000, 1000, 1000):
            await story.report(cpu_milli)
        await story.manager.apply(CONFIG)
        await story.report(1000)
    said = [stored for stored in story.events() if stored.type == "MassAbnormalityChanged"]
    assert len(said) == 2
    for begin in range(len(story.events())):
        for chosen in (None, SAME | {"slo-adjust-config": json.dumps(adjusting)}):
            found = again(story.events()[: said[-1].seq], story.reports, chosen, begin)
            assert (found.fates(), found.tally.explained) == ([], True)
            assert found.mass_abnormal is None
    more = SAME | {"slo-adjust-config": json.dumps({**adjusting, "maxAbnormalRatio": 1})}
    found = again(story.events()[: said[0].seq], story.reports[:2], more)
    [fate] = found.fates()
    assert fate.recorded is not None
    assert fate.rerun is not None
    assert fate.recorded.health is not None
    assert fate.rerun.health is not None
    assert (fate.recorded.health.reported_weight, fate.rerun.health.reported_weight) == (100, fate.rerun.health.weight)
    assert found.mass_abnormal is False


async def test_what_was_worth_a_look_in_a_configuration_is_repeated() -> None:
    story = Story()
    async with running(story.manager):
        generous = CONFIG.replace('"cpuReclaimThresholdPercent": 60', '"cpuReclaimThresholdPercent": 120')
        await story.manager.apply("\n---\n".join([generous, NODE]))
        await story.report(1500)
        await story.manager.apply(CONFIG)
        await story.report(1500)
    assert [stored.type for stored in story.events()].count("ConfigWarned") == 1
    for begin in range(len(story.events())):
        assert again(story.events(), story.reports, None, begin).tally.explained


async def test_root_quota_of_a_profile_is_repeated() -> None:
    profile = """
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata: {name: pool, namespace: kube-system}
spec: {quotaName: pool-root, quotaLabels: {a: b}, resourceRatio: "0.9", nodeSelector: {matchLabels: {pool: a}}}
"""
    pooled = NODE.replace("metadata: {name: n.1}", "metadata: {name: n.1, labels: {pool: a}}")
    story = Story()
    async with running(story.manager):
        await story.manager.apply("\n---\n".join([CONFIG, NODE, profile]))
        await story.report(1500)
        await story.manager.apply(pooled)
        await story.report(1500)
        target = Target("ElasticQuotaProfile", "kube-system", "pool")
        [deleted] = await story.manager.intake.submit([target], "delete")
        assert deleted.action == "deleted"
        await story.report(1500)
    types = [stored.type for stored in story.events()]
    assert (types.count("QuotaProfileRendered"), types.count("QuotaProfileDropped")) == (2, 1)
    for begin in range(len(story.events())):
        tally = again(story.events(), story.reports, None, begin).tally
        assert tally.recorded == tally.rerun == tally.same


def device(healthy: bool) -> str:
    gpu = f"{{type: gpu, minor: 0, health: {str(healthy).lower()}, resources: {{koordinator.sh/gpu-core: 100}}}}"
    return f"""
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {{name: n.1, labels: {{node.koordinator.sh/gpu-model: A100}}}}
spec: {{devices: [{gpu}, {gpu.replace("minor: 0", "minor: 1").replace("false", "true")}]}}
"""


async def test_what_devices_give_a_node_is_repeated_and_follows_its_gate_and_plugin() -> None:
    story = Story()
    async with running(story.manager):
        await story.manager.apply("\n---\n".join([CONFIG, NODE, device(True)]))
        await story.report(1500)
        await story.manager.apply(device(False))
        await story.report(1500)
    computed = [stored for stored in story.events() if stored.type == "NodeDevicesComputed"]
    assert len(computed) == 2
    for begin in range(len(story.events())):
        for chosen in (None, SAME):
            found = again(story.events(), story.reports, chosen, begin)
            assert (found.fates(), found.tally.explained) == ([], True)

    shared = ManagerWhatIf(ManagerView(), story.reports, flags=RecordedFlags(sync_shared_gpus=True))
    [fate] = rerun(shared, story.events()).nodes.fates()
    assert fate.recorded is not None
    assert fate.rerun is not None
    assert fate.rerun.devices == fate.recorded.devices | {"koordinator.sh/gpu.shared": 100}
    without = ManagerWhatIf(ManagerView(), story.reports, flags=RecordedFlags(plugins=frozenset(PLUGINS) - {GPU}))
    assert not rerun(without, story.events()).nodes.tally.explained


async def test_ratios_are_tried_and_repeated_too() -> None:
    text = json.dumps({"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}})
    amplified = SAME | {"resource-amplification-config": text}
    story = await told(CONFIG)
    [fate] = again(story.events(), story.reports, amplified).fates()
    assert fate.recorded is not None
    assert fate.rerun is not None
    assert (fate.recorded.amplification, fate.rerun.amplification) == (None, '{"cpu":1.50}')
    assert fate.recorded.batch_cpu_milli == fate.rerun.batch_cpu_milli

    story = await told(f"{CONFIG}  resource-amplification-config: '{text}'\n")
    for chosen in (None, amplified):
        found = again(story.events(), story.reports, chosen)
        assert (found.fates(), found.tally.recorded, found.tally.same) == ([], 6, 6)


async def test_colocation_that_was_off_is_tried_at_every_report_that_is_kept() -> None:
    story = await told(OFF)
    [fate] = again(story.events(), story.reports, SAME).fates()
    assert fate.recorded is not None
    assert fate.rerun is not None
    assert (fate.recorded.batch_cpu_milli, fate.rerun.batch_cpu_milli) == (None, 10_000 - 4000 - 100 - 2500)
    [fate] = again(story.events(), [], SAME).fates()
    assert fate.rerun is not None
    assert fate.rerun.batch_cpu_milli is None, "nothing is known of what pods used"
    assert fate.rerun.cpu_normalization == "1.00"


async def test_decision_whose_report_is_gone_stands_as_recorded_where_the_configuration_means_the_same() -> None:
    story = await told(CONFIG)
    for chosen in (None, SAME):
        found = again(story.events(), story.reports[1:], chosen)
        assert (found.tally.not_retained, found.tally.recorded, found.tally.same) == (1, 6, 5)
        assert found.fates() == []


async def test_what_a_node_says_itself_stands_above_what_is_tried() -> None:
    story = Story()
    async with running(story.manager):
        own = NODE.replace(
            "metadata: {name: n.1}", "metadata: {name: n.1, labels: {node.koordinator.sh/cpu-reclaim-ratio: '0.8'}}"
        )
        await story.manager.apply("\n---\n".join([CONFIG, own]))
        await story.report(1500)
    tried = SAME | {"colocation-config": json.dumps({"enable": True, "cpuReclaimThresholdPercent": 10})}
    assert again(story.events(), story.reports, tried).fates() == []
