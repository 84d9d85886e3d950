"""Shared-resource templates: a slice of a card must equal a template of the card's model."""

from typing import Any

from koord_scheduler.domain.plugins.device.templates import GpuTemplates
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events.envelope import name_token, namespaced_token
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import ConfigAccepted, ConfigDeleted, CustomObjectObserved
from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import GPU_TEMPLATES
from koordcore.protocol.objects import ConfigMap, ObjectMeta, Pod
from koordcore.values.allocation import AllocatedDevice
from support.scheduler.devices import MEMORY, asking, device
from support.scheduler.scheduling import Scheduler, SmallLog, node

CORE, CPU = "huawei.com/npu-core", "huawei.com/npu-cpu"
MORE = {CORE: "16", CPU: "14", MEMORY: "48Gi", "koordinator.sh/gpu.shared": "100"}
SLICES = """
huawei-Ascend-310P3:
  vir02:
    koordinator.sh/gpu-memory: 6Gi
    huawei.com/npu-core: 2
    huawei.com/npu-cpu: 2
  vir04:
    koordinator.sh/gpu-memory: 12Gi
    huawei.com/npu-core: 4
    huawei.com/npu-cpu: 4
"""


def _card(minor: int) -> dict[str, Any]:
    resources = {CORE: "8", CPU: "7", MEMORY: "24Gi", "koordinator.sh/gpu-memory-ratio": "100"}
    return {"type": "gpu", "minor": minor, "id": f"NPU-{minor}", "health": True, "resources": resources}


def _log(*, model: str = "Ascend-310P3", slices: str = SLICES) -> SmallLog:
    log = SmallLog()
    labels = {keys.GPU_VENDOR: "huawei", keys.GPU_MODEL: model}
    log.add_node(node("a", cpu="32", more=MORE, labels=labels))
    log.say("customspec", f"devices={name_token('a')}", CustomObjectObserved(object=device("a", [_card(0), _card(1)])))
    if slices:
        _list(log, slices)
    return log


def _list(log: SmallLog, slices: str) -> None:
    meta = ObjectMeta(namespace=GPU_TEMPLATES[0], name=GPU_TEMPLATES[1])
    event = ConfigAccepted(object=ConfigMap(metadata=meta, data={"data.yaml": slices}))
    log.say("config", namespaced_token(*GPU_TEMPLATES), event)


def _slice(uid: str, cores: int, memory: str, cpus: int) -> Pod:
    return asking(uid, {CORE: str(cores), CPU: str(cpus), MEMORY: memory, "koordinator.sh/gpu.shared": "1"})


def _run(log: SmallLog) -> Scheduler:
    scheduler = Scheduler(log)
    scheduler.run()
    return scheduler


def _given(scheduler: Scheduler, uid: str) -> tuple[AllocatedDevice, ...]:
    return scheduler.state.assumed.ledgers.holders(scheduler.state.pods[uid].node)[uid].allocation.devices


def _message(scheduler: Scheduler, uid: str) -> str:
    found = [each.event for each in scheduler.explanations if each.uid == uid]
    assert isinstance(found[-1], PodUnschedulable)
    return found[-1].message


def test_the_allocation_names_the_template_that_the_request_equals() -> None:
    log = _log()
    log.add_pod(_slice("p", 4, "12Gi", 4))
    (found,) = _given(_run(log), "p")
    assert (found.minor, found.template) == (0, "vir04")


def test_a_request_that_equals_no_template_of_any_model_is_refused_before_any_node() -> None:
    log = _log()
    log.add_pod(_slice("p", 3, "12Gi", 4))
    assert _message(_run(log), "p") == "0/1 nodes are available: no matched GPU shared resource template."


def test_a_node_whose_model_has_no_such_template_is_refused() -> None:
    log = _log(model="Ascend-910")
    log.add_pod(_slice("p", 4, "12Gi", 4))
    assert "1 no matched GPU shared resource template" in _message(_run(log), "p")


def test_of_several_equal_templates_none_is_recorded() -> None:
    log = _log(slices=SLICES + SLICES.strip().partition("vir04")[2].join(["  twin", "\n"]))
    log.add_pod(_slice("p", 4, "12Gi", 4))
    (found,) = _given(_run(log), "p")
    assert found.template == ""


def test_a_new_list_of_templates_wakes_the_pods_that_waited_for_it() -> None:
    log = _log(slices="")
    log.add_pod(_slice("p", 2, "6Gi", 2))
    scheduler = _run(log)
    assert not scheduler.state.pods["p"].node
    _list(log, SLICES)
    scheduler.run(now=100.0)
    assert _given(scheduler, "p")[0].template == "vir02"


def test_a_snapshot_contains_the_templates_and_a_deleted_list_leaves_none() -> None:
    log = _log()
    saved = b"".join(Picture(_run(log).state).pieces())
    log.add_pod(_slice("p", 4, "12Gi", 4))
    restored = Scheduler(log)
    load_state(restored.state, saved)
    restored.run()
    assert _given(restored, "p")[0].template == "vir04"
    log.say(
        "config", namespaced_token(*GPU_TEMPLATES), ConfigDeleted(namespace=GPU_TEMPLATES[0], name=GPU_TEMPLATES[1])
    )
    log.add_pod(_slice("q", 4, "12Gi", 4))
    restored.run(now=10.0)
    assert _message(restored, "q") == "0/1 nodes are available: no matched GPU shared resource template."


def test_entries_that_are_not_valid_are_ignored_with_the_reason() -> None:
    templates = GpuTemplates([CORE])
    problems = templates.read({"data.yaml": SLICES + "other: {vir01: {huawei.com/npu-core: many}}\nodd: 3\n"})
    assert len(problems) == 2
    assert "the templates of other in data.yaml are ignored" in problems[0]
    assert "the templates of odd in data.yaml are ignored" in problems[1]
    assert list(templates.of_node({keys.GPU_VENDOR: "huawei", keys.GPU_MODEL: "Ascend-310P3"})) == ["vir02", "vir04"]
    assert "data.yaml is ignored" in templates.read({"data.yaml": "{"})[0]
