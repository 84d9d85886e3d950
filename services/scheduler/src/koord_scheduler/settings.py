"""The command line flags and environment variables of the scheduler, besides those of every service."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from koordcore.service.component import ComponentSettings
from koordcore.service.flags import FlagSpec, Gate, Stage, without_effect
from koordcore.service.settings import Seconds, TextList
from pydantic import Field

from koord_scheduler.domain.engine.decision import Optimisations
from koord_scheduler.domain.framework.gates import WITHOUT_EFFECT, SchedulerGates, gate_defaults


class SchedulerSettings(ComponentSettings):
    """All flags and environment variables of `koord-scheduler`."""

    service: ClassVar[str] = "scheduler"
    folds_cluster: ClassVar[bool] = True
    about: ClassVar[str] = (
        "Places pods on nodes: folds the log, decides, and appends each placement with its explanation. Several "
        "instances may run; one leads."
    )

    known_gates: ClassVar[Sequence[Gate]] = tuple(
        Gate(name, default, Stage.BETA if default else Stage.ALPHA, WITHOUT_EFFECT.get(name, ""))
        for name, default in gate_defaults().items()
    )

    config: Path | None = Field(
        None,
        description="KubeSchedulerConfiguration, or a ConfigMap that holds one. Without it: the shipped profile.",
    )
    scheduler_name: TextList = Field(
        ("default-scheduler",),
        description="Further scheduler names whose pods the first profile places. Leave it empty if another scheduler "
        "places them.",
    )
    pod_initial_backoff: Seconds | None = Field(
        None,
        gt=0,
        description="First back-off of a pod whose attempt failed. Without it: the value in the configuration.",
    )
    pod_max_backoff: Seconds | None = Field(
        None,
        gt=0,
        description="Longest back-off of a pod whose attempts fail. Without it: the value in the configuration.",
    )
    controller_plugins: TextList = Field(
        ("*",),
        description="Plugins whose controllers run on the leader: * is all, A,B are two, *,-A is all but one.",
    )
    enable_network_topology_manager: bool = Field(
        False,
        description="Publish the domains of the ClusterNetworkTopology even if no profile places gangs by them "
        "(awareNetworkTopology).",
    )
    scheduler_monitor_period: Seconds = Field(
        10.0, gt=0, description="Period of the check for decisions that the log has not answered."
    )
    scheduling_timeout: Seconds = Field(
        30.0, gt=0, description="A decision that the log has not answered for longer is logged as an error and counted."
    )
    dynamic_index: bool = Field(
        True, description="Find candidates by indexes and filter only these nodes. Changes no decision, only its cost."
    )
    equivalence_classes: bool = Field(
        True, description="Cache the answers of plugins for pods that are alike. Changes no decision, only its cost."
    )
    random_relaxation: bool = Field(
        False,
        description="Examine only some nodes, at most percentageOfNodesToScore (0: adaptive), until no better ones are "
        "found. It is meant for very many nodes and very different pods, and may miss the best node.",
    )
    debug_scores: int = Field(
        0, ge=0, description="Log a table of this many best nodes for each placement; 0 for no table."
    )
    debug_filters: bool = Field(False, description="Log a line for each filter that fails.")
    debug_diagnosis: bool = Field(False, description="Log the diagnosis of each failed attempt.")
    debug_diagnosis_blocking: bool = Field(
        False,
        description="Log diagnoses before the next decision. Otherwise a task logs them, or drops some.",
    )
    debug_diagnosis_queue_size: int = Field(1000, ge=1, description="Number of diagnoses that may wait to be logged.")

    secure_port: int = Field(
        10259, ge=0, le=65535, description="Further port, with TLS, if --tls-cert-file is given; 0: none."
    )

    idle_flags: ClassVar[Sequence[FlagSpec]] = (
        *ComponentSettings.idle_flags,
        *without_effect("debug-diagnosis-worker-count", "one task writes the diagnoses"),
        *without_effect("scheduling-drop-unhandled-timeout", "a pod that leaves the queue is decided at once"),
        *without_effect(
            "sync-barrier-pod-namespace sync-barrier-pod-name sync-hard-timeout",
            "a new leader always folds the whole log first",
        ),
        *without_effect("enable-workload-auditor", "the projector stores the life of every pod", is_bool=True),
        *without_effect(
            """workload-auditor-metric-labels workload-auditor-victim-reschedule-duration
            workload-auditor-victim-deletion-duration workload-auditor-victim-deleting-retries
            workload-auditor-scheduling-event-interval""",
            "the projector stores the life of every pod",
        ),
        *without_effect("async-log", "logs are written without a queue", is_bool=True),
        *without_effect("async-log-queue-length", "logs are written without a queue"),
        *without_effect(
            "pod-max-in-unschedulable-pods-duration", "a pod is attempted again when something changes that may help it"
        ),
    )

    def optimisations(self) -> Optimisations:
        return Optimisations(
            dynamic_index=self.dynamic_index,
            equivalence_classes=self.equivalence_classes,
            random_relaxation=self.random_relaxation,
        )

    def gates(self) -> SchedulerGates:
        """Those of `--feature-gates`, with defaults for the others."""
        return SchedulerGates.from_values(self.feature_gates.values)
