"""The command line flags and environment variables of the scheduler, besides those of every service."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from koordcore.service.bus import ElectedSettings
from koordcore.service.configuration.gates import Gate, Stage
from koordcore.service.configuration.settings import Flag, Seconds, TextList
from pydantic import Field

from koord_scheduler.domain.config.gates import SchedulerGates, gate_defaults
from koord_scheduler.domain.evaluate.optimisations import Optimisations


class SchedulerSettings(ElectedSettings):
    """Settings of `koord-scheduler`."""

    service: ClassVar[str] = "scheduler"
    about: ClassVar[str] = (
        "Places pods on nodes: folds the log, decides, appends each placement with its explanation. Several may run; "
        "one leads."
    )

    known_gates: ClassVar[Sequence[Gate]] = tuple(
        Gate(name, default, Stage.BETA if default else Stage.ALPHA) for name, default in gate_defaults().items()
    )

    config: Path | None = Field(
        None, description="KubeSchedulerConfiguration, or a ConfigMap that holds one; none: the shipped profile."
    )
    scheduler_name: TextList = Field(
        ("default-scheduler",),
        description="Pods of these scheduler names are placed by the first profile, besides those of the profiles' "
        "own names. Leave it empty where another scheduler serves them.",
    )
    pod_initial_backoff: Seconds | None = Field(
        None, gt=0, description="First wait of a pod whose attempt failed; none: what the configuration says."
    )
    pod_max_backoff: Seconds | None = Field(
        None, gt=0, description="Longest wait of a pod whose attempts fail; none: what the configuration says."
    )
    controller_plugins: TextList = Field(
        ("*",), description="Plugins whose controllers run on the leader: * all, A,B these, *,-A all but these."
    )
    enable_network_topology_manager: bool = Field(
        False,
        description="State the domains of the ClusterNetworkTopology also when no profile places gangs by it "
        "(awareNetworkTopology).",
    )
    scheduler_monitor_period: Seconds = Field(
        10.0, gt=0, description="How often decisions without an outcome are looked for."
    )
    scheduling_timeout: Seconds = Field(
        30.0, gt=0, description="A decision without an outcome for longer is logged as an error and counted."
    )
    dynamic_index: bool = Field(
        True, description="Find few candidates by indexes and judge them alone; off changes no decision, only its cost."
    )
    equivalence_classes: bool = Field(
        True, description="Keep answers for pods that are alike; off changes no decision, only its cost."
    )
    random_relaxation: bool = Field(
        False,
        description="Examine nodes only until better ones stop turning up, at most percentageOfNodesToScore (0: "
        "adaptive): for very many nodes and pods of which no two are alike. It may place pods on nodes that are not "
        "the best.",
    )
    debug_scores: int = Field(0, ge=0, description="Log a table of so many best nodes for each placement; 0: none.")
    debug_filters: bool = Field(False, description="Log a line for each filter that fails.")
    debug_diagnosis: bool = Field(False, description="Log the diagnosis of each failed attempt.")
    debug_diagnosis_blocking: bool = Field(
        False, description="Log diagnoses before the next decision, instead of beside and dropped when too many wait."
    )
    debug_diagnosis_queue_size: int = Field(1000, ge=1, description="So many diagnoses may wait to be logged.")

    http_host: Annotated[str, Flag("address")] = Field("127.0.0.1", description="Address to serve on.")
    http_port: Annotated[int, Flag("port")] = Field(
        0, ge=0, le=65535, description="Port to serve on; 0: a free one, told in the log."
    )
    debug_diagnosis_worker_count: int = Field(
        10, ge=1, description="Accepted without effect: one task writes the diagnoses."
    )
    scheduling_drop_unhandled_timeout: Seconds = Field(
        5.0, gt=0, description="Accepted without effect: a pod that is taken from the queue is decided at once."
    )
    sync_barrier_pod_namespace: str = Field(
        "kube-system", description="Accepted without effect: a new leader always folds first what the log has."
    )
    sync_barrier_pod_name: str = Field("koord-scheduler-sync-barrier", description="Accepted without effect.")
    sync_hard_timeout: Seconds = Field(60.0, gt=0, description="Accepted without effect.")
    enable_workload_auditor: bool = Field(
        False, description="Accepted without effect: the projector keeps the life of every pod."
    )
    workload_auditor_metric_labels: TextList = Field((), description="Accepted without effect.")

    def optimisations(self) -> Optimisations:
        """Return which optimisations are on."""
        return Optimisations(
            dynamic_index=self.dynamic_index,
            equivalence_classes=self.equivalence_classes,
            random_relaxation=self.random_relaxation,
        )

    def gates(self) -> SchedulerGates:
        """Return the feature gates as an object."""
        return SchedulerGates.from_values(self.feature_gates.values)
