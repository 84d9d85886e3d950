"""Keep the learned models: one for each container of each target, fed from the usage reports of nodes.

A target is the workload, or the pods, that a Recommendation selects. The models are a fold of the usage reports. A
checkpoint contains its position, and after a restart the later reports are read again.

Source:
    manager spec, 15.4, 15.6
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from koordcore.events.observation import ContainerUsage, NodeUsageReported, PodUsage
from koordcore.protocol.objects import Container, Pod
from koordcore.protocol.pod_resources import running_containers
from koordcore.state.aggregates import PodSpecState
from koordcore.state.pods_of_nodes import is_foreign
from koordcore.values import codec
from koordcore.values.codec import schema_digest
from koordcore.values.decaying_histogram import DecayingHistogram
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli, parse_value

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.model import (
    ContainerModel,
    InstanceState,
    cpu_options,
    memory_options,
)
from koord_manager.domain.controllers.recommender.settings import DEFAULT_SETTINGS, RecommenderSettings
from koord_manager.domain.controllers.recommender.startup_boost import boosted_containers
from koord_manager.domain.controllers.recommender.targets import Targets

CHECKPOINT_FOLD: Final = "recommender"
"""Name of the checkpoints in the snapshot store."""
KEPT_SECONDS: Final = 8 * 86400
"""Time after its last sample for which the models of a target without a pod are kept."""


class ModelKey(NamedTuple):
    """Key of a model: namespace, key of the target (workload or selector), and name of the container."""

    namespace: str
    target: str
    container: str


class _StoredHistogram(msgspec.Struct, frozen=True):
    weights: dict[int, float]
    total: float
    reference: float


class _StoredModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    namespace: str
    target: str
    container: str
    cpu: _StoredHistogram
    memory: _StoredHistogram
    instances: dict[str, InstanceState] = {}
    first_at: float | None = None
    last_at: float | None = None
    count: int = 0


class _StoredBook(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    settings: RecommenderSettings
    models: list[_StoredModel]


class RecommenderBook:
    """The learned usage models of all containers that a Recommendation selects. Only one task may use an instance."""

    def __init__(self, settings: RecommenderSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings  # Settings under which samples are learned
        self.targets = Targets()  # Finds the Recommendations that select a pod
        self.position = 0  # Position of the last usage report that was read
        self.samples = 0  # Number of samples that this process has learned
        self.models: dict[ModelKey, ContainerModel] = {}
        self._of_target: dict[tuple[str, str], dict[str, ContainerModel]] | None = None

    def observe(self, view: ManagerView, position: int, node: str, report: NodeUsageReported) -> None:
        """Learn from one usage report: add a sample for each container of a pod that a Recommendation selects and that
        is on the reporting node.

        `position` is that of the report in the stream of observations, `node` the token of the node that reports.
        """
        self.position = max(self.position, position)
        self.targets.refresh(view)
        at: float | None = None
        for sample in report.pods:
            found = view.pod(sample.namespace, sample.name) if not sample.uid else None
            uid = found[0] if found else sample.uid
            targets = self.targets.of_pod(view, uid)
            if not targets or is_foreign(view.state, uid, node):
                continue
            if at is None:
                at = datetime.fromisoformat(report.updated_at).timestamp()
            pod = view.state.of_kind(PodSpecState)[uid].object
            boosted = boosted_containers(pod)
            for container, usage in container_usages(pod, sample):
                # While a pod starts with a boost, its samples weigh no more than later ones.
                usual = boosted.get(container.name)
                requested = _requested(container, "cpu") if usual is None else _amount("cpu", usual.request)
                for key in {(wanted.target.namespace, wanted.target.key) for wanted in targets if wanted.target}:
                    name = ModelKey(*key, container.name)
                    self._take(name, f"{uid}/{container.name}", container, usage, at, requested / 1000)

    def models_of(self, namespace: str, target: str) -> dict[str, ContainerModel]:
        """Return name of the container -> model for one target (`Target.key`), in order of name."""
        if self._of_target is None:
            self._of_target = {}
            for key in sorted(self.models):
                self._of_target.setdefault((key.namespace, key.target), {})[key.container] = self.models[key]
        return self._of_target.get((namespace, target), {})

    def forget(self, view: ManagerView, now: float) -> None:
        """Drop deleted pods, and models without pods whose last sample is too old. `now`: Unix time in seconds."""
        specs = view.state.of_kind(PodSpecState)
        for key in list(self.models):
            model = self.models[key]
            for instance in [name for name in model.instances if name.partition("/")[0] not in specs]:
                del model.instances[instance]
            if not model.instances and (model.last_at is None or now - model.last_at > KEPT_SECONDS):
                del self.models[key]
                self._of_target = None

    def use(self, settings: RecommenderSettings) -> None:
        """Use other settings from now on.

        If one of `RecommenderSettings.learning` differs, all models are dropped, and the position is 0: the caller lets
        the book learn again from the reports that are still there.
        """
        if settings.learning != self.settings.learning:
            self.models, self.position = {}, 0
            self._of_target = None
        self.settings = settings
        for model in self.models.values():
            model.settings = settings

    def checkpoint(self) -> bytes:
        """Return all models with position and settings as bytes, which `restore` reads."""
        models = [
            _StoredModel(
                namespace=key.namespace,
                target=key.target,
                container=key.container,
                cpu=_StoredHistogram(model.cpu.weights, model.cpu.total, model.cpu.reference),
                memory=_StoredHistogram(model.memory.weights, model.memory.total, model.memory.reference),
                instances=model.instances,
                first_at=model.first_at,
                last_at=model.last_at,
                count=model.count,
            )
            for key, model in sorted(self.models.items())
        ]
        return codec.encode(_StoredBook(position=self.position, settings=self.settings, models=models))

    def restore(self, data: bytes) -> bool:
        """Replace the models and the position by those of a checkpoint.

        Returns:
            False if the checkpoint was learned under other settings. Then there are no models, and the position is 0.

        Raises:
            codec.DecodeError: The checkpoint is not valid.
        """
        stored = codec.decode(data, _StoredBook)
        self.models, self.position = {}, 0
        self._of_target = None
        if stored.settings.learning != self.settings.learning:
            return False
        self.position = stored.position
        for entry in stored.models:
            self.models[ModelKey(entry.namespace, entry.target, entry.container)] = ContainerModel(
                settings=self.settings,
                cpu=DecayingHistogram(
                    cpu_options(self.settings), dict(entry.cpu.weights), entry.cpu.total, entry.cpu.reference
                ),
                memory=DecayingHistogram(
                    memory_options(self.settings),
                    dict(entry.memory.weights),
                    entry.memory.total,
                    entry.memory.reference,
                ),
                instances=dict(entry.instances),
                first_at=entry.first_at,
                last_at=entry.last_at,
                count=entry.count,
            )
        return True

    def _take(
        self,
        key: ModelKey,
        instance: str,
        container: Container,
        usage: ContainerUsage,
        at: float,
        requested_cores: float,
    ) -> None:
        model = self.models.get(key)
        if model is None:
            model = self.models[key] = ContainerModel.empty(self.settings)
            self._of_target = None
        cores, memory = usage.usage.cpu_milli / 1000, usage.usage.memory_bytes
        is_measured = memory > 0 or not usage.oom_killed_at
        if is_measured and model.add_cpu(instance, cores, at, requested_cores=requested_cores):
            self.samples += 1
        if memory:
            model.add_memory(instance, float(memory), at)  # a container that runs uses some, so 0 is no sample
        state = model.instances.setdefault(instance, InstanceState())
        if usage.oom_killed_at:
            killed_at = datetime.fromisoformat(usage.oom_killed_at).timestamp()
            if state.oom_at is None or killed_at > state.oom_at:
                state.oom_at = killed_at
                model.add_oom(instance, killed_at, requested_bytes=float(_requested(container, "memory")))


def container_usages(pod: Pod, sample: PodUsage) -> Iterator[tuple[Container, ContainerUsage]]:
    """Yield each container of a pod with its usage in a sample.

    Sidecars count as containers, other init containers do not. If the sample has no usage of containers, yield the
    usage of the pod for its only container, and nothing for a pod with several containers (manager spec, 15.4).
    """
    running = running_containers(pod)
    if sample.containers:
        by_name = {container.name: container for container in running}
        yield from ((by_name[usage.name], usage) for usage in sample.containers if usage.name in by_name)
    elif len(running) == 1:
        only = running[0]
        yield only, ContainerUsage(name=only.name, usage=sample.usage, oom_killed_at=sample.oom_killed_at)


def _requested(container: Container, resource: str) -> int:
    """Return a container's request in milli-cores or bytes, or 0 if there is none or it is not valid."""
    return _amount(resource, container.resources.requests.get(resource))


def _amount(resource: str, written: str | float | None) -> int:
    try:
        return 0 if written is None else parse_milli(written) if resource == "cpu" else parse_value(written)
    except InvalidInput:
        return 0


def checkpoint_settings(data: bytes) -> RecommenderSettings:
    """Return the settings under which the models of a checkpoint were learned.

    Raises:
        codec.DecodeError: The checkpoint is not valid.
    """
    return codec.decode(data, _StoredBook).settings


def book_fingerprint() -> str:
    """Return a digest of the schema of checkpoints. Checkpoints with another digest are not loaded."""
    return schema_digest([_StoredBook])
