"""The log of the process names objects that are probably not as intended."""

from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture
from koord_scheduler.shell.folding import StateFold
from koord_scheduler.shell.observing import SchedulerMetrics
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from support.scheduler.devices import device, gpu
from support.scheduler.scheduling import SmallLog, frameworks


def test_each_warning_about_an_object_is_logged_once() -> None:
    log = SmallLog()
    for generation in range(3):
        for name in ("a", "b"):
            ref = custom_ref("elasticquotas", "team", name)
            meta = {"namespace": "team", "name": name, "generation": generation}
            log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": meta, "spec": {"max": "nonsense"}}))
    state = SchedulerState(frameworks())
    fold = StateFold(state, SchedulerMetrics(CollectorRegistry(), ["main"]))

    with capture_logs() as lines:
        for stored in log.events:
            fold.apply(stored)

    assert [line["object"] for line in lines] == [f"customspec/elasticquotas=team={name}" for name in ("a", "b")]
    assert all("cannot be read" in line["warning"] and line["log_level"] == "warning" for line in lines)
    assert not state.cluster.warnings


def test_warnings_about_objects_in_a_snapshot_are_logged_after_a_restart() -> None:
    log, ref = SmallLog(), custom_ref("devices", "", "n")
    questionable = device("n", [gpu(0)])
    questionable["metadata"].setdefault("annotations", {})[keys.GPU_PARTITIONS] = "nonsense"
    log.say(ref.kind, ref.id, CustomObjectObserved(object=questionable))
    state = SchedulerState(frameworks())
    StateFold(state, SchedulerMetrics(CollectorRegistry(), ["main"])).apply(log.events[0])

    restored = StateFold(SchedulerState(frameworks()), SchedulerMetrics(CollectorRegistry(), ["main"]))
    with capture_logs() as lines:
        restored.restore(b"".join(Picture(state).pieces()))
    assert [line["object"] for line in lines] == ["snapshot"]
