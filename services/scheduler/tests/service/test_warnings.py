"""The log of the process names objects that are probably not as intended."""

from koord_scheduler.domain.replay.snapshot import Picture
from koord_scheduler.domain.state.state import SchedulerState
from koord_scheduler.shell.folding import StateFold
from koord_scheduler.shell.observing import SchedulerMetrics
from koordcore.events.objects.custom import CustomObjectObserved, custom_ref
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
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

    restored = StateFold(SchedulerState(frameworks()), SchedulerMetrics(CollectorRegistry(), ["main"]))
    with capture_logs() as lines:
        restored.restore(b"".join(Picture(state).pieces()))
    assert [line["object"] for line in lines] == ["snapshot"]
