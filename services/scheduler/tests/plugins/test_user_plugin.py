"""A user's plugin from a package of its own: found by its entry point, configured, followed, explained, restored."""

import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from koord_scheduler.configuration import installed_makers, installed_plugins, known_plugins, load_configuration
from koord_scheduler.domain.config.catalogue import KnownPlugin
from koord_scheduler.domain.config.effective import EffectiveProfile, effective_configuration
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.extension_points import TRANSFORM_POD
from koord_scheduler.domain.framework.plugin import Point
from koord_scheduler.domain.loop.profiles import frameworks_of
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.registry import Maker
from koord_scheduler.domain.replay.snapshot import Picture, load_state, schema_fingerprint
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import ConfigAccepted, ConfigDeleted
from koordcore.protocol.objects import ConfigMap, ObjectMeta, Pod
from koordcore.values.invalid import InvalidInput
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

EXAMPLE = Path(__file__).parents[4] / "examples" / "scheduler_plugin"
MAX_PRICE = "example.com/max-price"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as an installed package: its source on the path, its entry points beside it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "koordstream_cheap_nodes-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
        for group, entries in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(line for group in groups for line in group))
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(EXAMPLE / "src"), *sys.path])


def fresh_state() -> SchedulerState:
    return SchedulerState(frameworks_of(load_configuration(EXAMPLE / "scheduler.yaml"), more=installed_makers()))


def scheduler_of(log: SmallLog) -> Scheduler:
    scheduler = Scheduler(log)
    scheduler.state = fresh_state()
    return scheduler


def cluster() -> SmallLog:
    log = SmallLog()
    for price_class in ("spot", "reserved", "on-demand"):
        for index in range(3):
            log.add_node(node(f"{price_class}-{index}", labels={"example.com/price-class": price_class}))
    log.add_node(node("unlabelled"))
    set_prices(log, spot="0.08", reserved="0.21", **{"on-demand": "0.40"})
    return log


def set_prices(log: SmallLog, **prices: str) -> None:
    meta = ObjectMeta(namespace="koordinator-system", name="node-prices")
    log.say("config", "koordinator-system=node-prices", ConfigAccepted(object=ConfigMap(metadata=meta, data=prices)))


def node_of(scheduler: Scheduler, wanted: Pod) -> str:
    scheduler.log.add_pod(wanted)
    scheduler.run()
    return scheduler.state.pods[wanted.metadata.uid].node


@pytest.mark.usefixtures("installed")
def test_installed_plugin_is_known_and_its_arguments_are_checked() -> None:
    assert list(installed_plugins()) == ["CheapNodes"]
    text = (EXAMPLE / "scheduler.yaml").read_text()
    profile = effective_configuration(text.encode(), known_plugins()).profiles[0]
    assert profile.weights["CheapNodes"] == 1000
    with pytest.raises(InvalidInput, match="label"):
        effective_configuration(text.replace("label: example.com/price-class", "label: 7").encode(), known_plugins())


def test_a_plugin_that_is_not_installed_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="CheapNodes"):
        load_configuration(EXAMPLE / "scheduler.yaml")


@pytest.mark.usefixtures("installed")
def test_plugin_changes_where_a_pod_goes() -> None:
    log = cluster()
    scheduler = scheduler_of(log)
    assert all(node_of(scheduler, pod(f"p{index}", {"cpu": "1"})).startswith("spot") for index in range(5))
    set_prices(log, spot="0.50", reserved="0.21")
    assert node_of(scheduler, pod("later", {"cpu": "1"})).startswith("reserved")


@pytest.mark.usefixtures("installed")
def test_plugin_refuses_nodes_and_says_why() -> None:
    scheduler = scheduler_of(cluster())
    frugal = with_metadata(pod("frugal", {"cpu": "1"}), annotations={MAX_PRICE: "0.05"})
    assert node_of(scheduler, frugal) == ""
    event = scheduler.explanations[-1].event
    assert isinstance(event, PodUnschedulable)
    assert "10 node(s) cost more than 0.05 an hour" in event.message
    # pods that agree in all but the annotation do not share the answer
    assert node_of(scheduler, pod("any", {"cpu": "1"})).startswith("spot")
    assert node_of(scheduler, with_metadata(pod("mean", {"cpu": "1"}), annotations={MAX_PRICE: "0.1"})).startswith(
        "spot"
    )


@pytest.mark.usefixtures("installed")
def test_prices_that_fall_wake_the_pods_that_found_all_too_dear() -> None:
    log = cluster()
    scheduler = scheduler_of(log)
    frugal = with_metadata(pod("frugal", {"cpu": "1"}), annotations={MAX_PRICE: "0.05"})
    assert node_of(scheduler, frugal) == ""
    set_prices(log, reserved="0.01")
    scheduler.run(now=10.0)
    assert scheduler.state.pods["frugal"].node.startswith("reserved")


@pytest.mark.usefixtures("installed")
def test_state_of_the_plugin_survives_a_restart() -> None:
    log = cluster()
    scheduler = scheduler_of(log)
    scheduler.follow()
    again = Scheduler(log)
    again.state = fresh_state()
    load_state(again.state, b"".join(Picture(scheduler.state).pieces()))
    assert node_of(again, pod("p", {"cpu": "1"})).startswith("spot")
    log.say(
        "config", "koordinator-system=node-prices", ConfigDeleted(namespace="koordinator-system", name="node-prices")
    )
    nodes = {node_of(again, pod(f"q{index}", {"cpu": "1"})).rpartition("-")[0] for index in range(12)}
    assert len(nodes) > 1


@pytest.mark.usefixtures("installed")
def test_snapshot_without_the_plugin_is_not_used() -> None:
    state = fresh_state()
    assert schema_fingerprint(state.cluster, state.frameworks.folding) != schema_fingerprint(state.cluster, ())


class Sized:
    """A transformer: a label says how many cores the pod asks for."""

    name = "Sized"
    extension_points = (TRANSFORM_POD,)

    def transform(self, pod: Pod) -> Pod:
        cores = pod.metadata.labels.get("cores")
        return pod if cores is None else with_requests(pod, {"cpu": cores})


class Doubling(Sized):
    """A second one, which sees what the first has made of the pod."""

    name = "Doubling"

    def transform(self, pod: Pod) -> Pod:
        asked = pod.spec.containers[0].resources.requests.get("cpu", "0")
        return with_requests(pod, {"cpu": "4"}) if str(asked) == "2" else pod


def with_requests(pod: Pod, requests: dict[str, str]) -> Pod:
    [container] = pod.spec.containers
    resources = msgspec.structs.replace(container.resources, requests=requests)
    containers = [msgspec.structs.replace(container, resources=resources)]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))


def made_of(plugin: type[Sized]) -> Maker:
    def make(_: Cluster, __: EffectiveProfile) -> Sized:
        return plugin()

    return make


def test_transformers_change_pods_of_their_profile_in_the_order_of_the_point() -> None:
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins: {preFilter: {enabled: [{name: Sized}, {name: Doubling}]}}
- schedulerName: plain
"""
    plugins = [Sized, Doubling]
    known = {
        **known_plugins(),
        **{one.name: KnownPlugin(name=one.name, points=frozenset([Point.PRE_FILTER])) for one in plugins},
    }
    configuration = effective_configuration(text.encode(), known)
    more: dict[str, Maker] = {one.name: made_of(one) for one in plugins}
    log = SmallLog()
    log.add_node(node("n", cpu="8"))
    scheduler = Scheduler(log)
    scheduler.state = SchedulerState(frameworks_of(configuration, more=more))
    for name, profile in (("ours", "koord-scheduler"), ("theirs", "plain")):
        log.add_pod(with_metadata(pod(name, schedulerName=profile), labels={"cores": "2"}))
    scheduler.run()
    asked = {
        uid: record.subject.pod_class.requests.get("cpu", 0)
        for uid, record in scheduler.state.pods.items()
        if record.subject
    }
    assert asked == {"ours": 4000, "theirs": 0}
    again = SchedulerState(frameworks_of(configuration, more=more))
    load_state(again, b"".join(Picture(scheduler.state).pieces()))
    assert again.nodes.free.tolist() == scheduler.state.nodes.free.tolist()
