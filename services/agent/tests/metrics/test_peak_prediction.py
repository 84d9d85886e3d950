"""The node's models: what they learn, what a restart keeps, what disk trouble costs."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.prediction.model import HalfLives, Peak, UsageModel, model_of_checkpoint
from koord_agent.domain.prediction.predictor import PeakPredictor
from koord_agent.domain.prediction.reclaimable import ProdPod, predict_prod
from koord_agent.shell.node.predicting import CheckpointFolder

DAY = 86_400
START = 1_700_000_000


def prod_pod(uid: str, cpu: str = "4", created: str = "2020-01-01T00:00:00Z") -> AgentPod:
    """A running prod pod."""
    return agent_pod_from_json(
        {
            "metadata": {"name": uid, "namespace": "default", "uid": uid, "creationTimestamp": created},
            "spec": {
                "priority": 9_500,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "4Gi"}}}],
            },
            "status": {"phase": "Running", "qosClass": "Burstable"},
        }
    )


def trained(minutes: int = 3, checkpoints_per_step: int = 12) -> PeakPredictor:
    """A predictor that saw one pod use a core on a node that uses two."""
    store = SeriesStore()
    predictor = PeakPredictor(checkpoints_per_step=checkpoints_per_step)
    for minute in range(minutes):
        at_ms = (START + 60 * minute) * 1000
        for kind, value, of in (
            (Kind.NODE_CPU, 2.0, ""),
            (Kind.NODE_MEMORY, 4e9, ""),
            (Kind.POD_CPU, 1.0, "u"),
            (Kind.POD_MEMORY, 1e9, "u"),
        ):
            store.append(kind, at_ms, value, of)
        metrics = Metrics(store=store, now_ms=at_ms, interval_ms=1_000)
        predictor.train(metrics, [prod_pod("u")], START + 60 * minute)
    return predictor


def test_a_pod_that_uses_little_of_its_request_leaves_the_rest() -> None:
    found = trained().predict([prod_pod("u")], {"cpu": 16_000, "memory": 64 << 30}, {}, START + 180)
    assert found.reported is not None
    assert 2_600 < found.by_pod.reclaimable.cpu_milli < 3_000
    assert found.reported.peak.cpu_milli >= found.by_pod.peak.cpu_milli


def test_a_young_pod_is_counted_with_its_whole_request() -> None:
    found = trained().predict([prod_pod("u", created="2023-11-14T22:00:00Z")], {"cpu": 16_000}, {}, START + 180)
    assert found.by_pod.reclaimable.cpu_milli == 0
    assert found.by_pod.peak.cpu_milli == 4_000


def test_before_the_first_training_nothing_is_reported() -> None:
    assert PeakPredictor().predict([prod_pod("u")], {"cpu": 16_000}, {}, START).reported is None


def test_raw_allocatable_wins_over_an_amplified_one() -> None:
    annotations = {"node.koordinator.sh/raw-allocatable": '{"cpu":"2","memory":"8Gi"}'}
    found = trained().predict([prod_pod("u")], {"cpu": 16_000, "memory": 64 << 30}, annotations, START + 180)
    assert found.by_pod.reclaimable.cpu_milli < 1_000


def test_training_is_due_every_minute_and_after_a_clock_that_was_set_back() -> None:
    predictor = trained(minutes=1)
    assert not predictor.is_due(START + 59)
    assert predictor.is_due(START + 60)
    assert predictor.is_due(START - 1)


def test_a_restart_keeps_what_was_learnt(tmp_path: Path) -> None:
    before = trained()
    folder = CheckpointFolder(tmp_path / "checkpoints")
    folder.restore(before)
    assert folder.save(before, START + 180) is None
    after = PeakPredictor()
    assert folder.restore(after) == len(before)
    allocatable = {"cpu": 16_000, "memory": 64 << 30}
    assert after.predict([prod_pod("u")], allocatable, {}, START + 240) == before.predict(
        [prod_pod("u")], allocatable, {}, START + 240
    )


def test_checkpoints_of_gone_pods_and_broken_files_are_deleted(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(trained(), START)
    (tmp_path / "__node__").write_bytes(b'{"UID":"__node__","CPU":{"bucketWeights":{"9999":1}},"Memory":{}}')
    (tmp_path / "__node-sys__.tmp").write_bytes(b"half")
    after = PeakPredictor()
    folder.restore(after)
    folder.delete_ended(after, ())
    left = sorted(file.name for file in tmp_path.iterdir())
    assert "u" not in left
    assert "__node__" not in left
    assert "__node-sys__.tmp" not in left
    assert "__node-sys__" in left


def test_files_of_others_in_the_folder_of_checkpoints_stay(tmp_path: Path) -> None:
    theirs = ("notes.txt", "other.tmp", "model.json", "u")
    for name in theirs:
        (tmp_path / name).write_text("not ours")
    (tmp_path / "folder").mkdir()
    ours = ("1f0e3dad-9990-8345-b743-9f8ffabdffc4", "8f5d32ab3c6b1c5d1d9d1a3e5f7c9b10.tmp", "__node__")
    for name in ours:
        (tmp_path / name).write_text("broken")
    assert CheckpointFolder(tmp_path).restore(PeakPredictor()) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted((*theirs, "folder"))


def test_few_checkpoints_are_written_at_a_time_oldest_first() -> None:
    predictor = trained(checkpoints_per_step=3)
    first = [uid for uid, _ in predictor.checkpoints_due(START)]
    second = [uid for uid, _ in predictor.checkpoints_due(START + 60)]
    assert len(first) == len(second) == 3
    assert not set(first) & set(second)


def test_a_full_disk_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    trouble = CheckpointFolder(tmp_path / "file" / "below").save(trained(), START)
    assert trouble is not None
    assert trouble == "models of usage are not stored: Not a directory"


def test_models_that_learn_nothing_expire_with_their_file(tmp_path: Path) -> None:
    predictor = trained()
    folder = CheckpointFolder(tmp_path)
    folder.save(predictor, START + 180)
    folder.save(predictor, START + DAY)
    assert len(predictor) == 0
    assert list(tmp_path.iterdir()) == []


@given(samples=st.lists(st.tuples(st.floats(0, 2_000), st.floats(0, 2.0**42)), min_size=1, max_size=40))
def test_a_checkpoint_gives_nearly_the_same_prediction(samples: list[tuple[float, float]]) -> None:
    model = UsageModel()
    for index, (cpu, memory) in enumerate(samples):
        model.add(cpu, memory, START + 60 * index)
    restored = model_of_checkpoint(model.checkpoint("u"), "u", HalfLives())
    for fraction in (0.6, 0.9, 1.0):
        for before, after in ((model.cpu, restored.cpu), (model.memory, restored.memory)):
            # weights are kept in ten thousandths of the largest: a percentile moves by as little of the weight
            low, high = before.percentile(fraction - 0.01), before.percentile(min(fraction + 0.01, 1.0))
            assert low <= after.percentile(fraction) <= high


amounts = st.builds(Peak, cpu_milli=st.integers(0, 10**6), memory_bytes=st.integers(0, 2**42))
pods = st.builds(
    ProdPod,
    request=amounts,
    age_seconds=st.floats(0, 10 * DAY),
    prediction=st.none() | amounts,
    is_over=st.booleans(),
)


@given(allocatable=amounts, of_pods=st.lists(pods, max_size=8), classes=st.tuples(amounts, amounts, amounts))
def test_never_more_is_reclaimed_than_was_requested_or_than_the_node_has(
    allocatable: Peak, of_pods: list[ProdPod], classes: tuple[Peak, Peak, Peak]
) -> None:
    found = predict_prod(allocatable, of_pods, dict(zip(("sys", "koord-prod", ""), classes, strict=True))).reported
    assert found is not None
    requested = sum(pod.request.cpu_milli for pod in of_pods)
    assert 0 <= found.reclaimable.cpu_milli <= min(allocatable.cpu_milli, requested)
    assert found.peak.cpu_milli >= 0
