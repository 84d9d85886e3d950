"""The MigrationController as the service runs it: its settings from the configuration, and its requests as objects.

Source:
    descheduler spec, 7.1, 7.2, 7.6
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

from koordcore.events.descheduling import Inputs, Number, RoundMove
from koordcore.events.migration import TOO_MANY_EVICTIONS
from koordcore.protocol import keys
from koordcore.protocol.migrations import RESERVATION_FIRST
from koordcore.requests.objects import CreateObject
from koordcore.values.duration import NANOS_PER_SECOND, format_duration

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.effective import profile_args
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.object_limiter import Bucket, EvictionBuckets, ObjectLimiter
from koord_descheduler.domain.jobs.plugin import NAME, MigrationController
from koord_descheduler.domain.jobs.world import JobPolicy

API_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
KIND: Final = "PodMigrationJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobController:
    """The parts with which the service runs migration jobs to their end."""

    args: MigrationControllerArgs
    plugin: MigrationController
    # Decides which pods wait because others of their workload or namespace were evicted a short time ago.
    limiter: ObjectLimiter
    # Defaults of jobs (mode, eviction policy, options of the deletion), and the id of the installation.
    policy: JobPolicy
    budget: "EvictionBudget"  # Limits how many evictions all jobs together may ask for (`evictQPS`, `evictBurst`)


class EvictionBudget:
    """A token bucket for all evictions by migration jobs, which begins full (descheduler spec, 7.6 (1)).

    It follows from the recorded evictions. `per_second`: `evictQPS`. `burst`: `evictBurst`, the largest number of
    tokens.
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._second = 1 / per_second
        self._full = Bucket(tokens=burst, at=0.0, most=1, capacity=burst)
        self._bucket = self._full

    def trial(self) -> "EvictionBudget":
        """Tokens that are taken from the copy stay in this budget."""
        return copy(self)

    def rebuild(self, times: Iterable[float]) -> None:
        """`times`: Unix seconds of the recorded evictions, in any order."""
        self._bucket = self._full
        for each in sorted(times):
            self.take(each)

    def take(self, now: float) -> bool:
        """Return False if there is no token at `now`, in Unix seconds."""
        tokens = self._bucket.tokens_at(now, self._second)
        if tokens < 1:
            return False
        self._bucket = replace(self._bucket, tokens=tokens - 1, at=now)
        return True

    def inputs(self, now: float) -> Inputs:
        """The numbers of a refusal at `now`, in Unix seconds: tokens and the one that is needed, rate, burst."""
        return {
            TOO_MANY_EVICTIONS: Number(value=round(self._bucket.tokens_at(now, self._second), 3), limit=1),
            "evictQPS": Number(value=self._per_second),
            "evictBurst": Number(value=self._full.capacity),
        }


def job_controller(
    configuration: DeschedulerConfiguration, registry: Registry, shared: SharedState, installation: str
) -> JobController:
    """The controller of the first profile that evicts by migration jobs, else one with the defaults.

    `installation`: id of this installation, the same after a restart.

    Raises:
        InvalidInput: The arguments of the MigrationController are invalid.
    """
    args = arguments_of_jobs(configuration, registry)
    return JobController(
        args=args,
        plugin=MigrationController(args, shared),
        limiter=ObjectLimiter(args, shared.of(EvictionBuckets)),
        policy=JobPolicy(
            default_mode=args.default_job_mode,
            eviction_policy=args.eviction_policy,
            delete_options=args.default_delete_options,
            installation=installation,
        ),
        budget=EvictionBudget(args.evictions_per_second, args.evict_burst),
    )


def arguments_of_jobs(configuration: DeschedulerConfiguration, registry: Registry) -> MigrationControllerArgs:
    """Those of the first profile that evicts by migration jobs, else the defaults.

    Raises:
        InvalidInput: The arguments are invalid.
    """
    return next(
        (
            profile_args(profile, NAME, registry)
            for profile in configuration.profiles
            if profile.plugins.evict.enabled[0].name == NAME
        ),
        MigrationControllerArgs(),
    )


def creation(move: RoundMove, args: MigrationControllerArgs, installation: str) -> CreateObject:
    """The job by which a pod is to leave (descheduler spec, 7.2). `args`: those of the pod's profile."""
    spec: dict[str, Any] = {
        "podRef": {"kind": "Pod", "namespace": move.namespace, "name": move.name, "uid": move.uid},
        "mode": RESERVATION_FIRST if move.plan else args.default_job_mode,
    }
    if args.default_job_ttl:
        spec["ttl"] = format_duration(int(args.default_job_ttl * NANOS_PER_SECOND))
    if args.default_delete_options is not None:
        spec["deleteOptions"] = dict(args.default_delete_options)
    annotations = {
        keys.EVICT_REASON: move.reason,
        keys.EVICT_TRIGGER: move.plugin,
        keys.JOB_CREATED_BY: installation,
        keys.JOB_ROUND: move.round,
        keys.JOB_PROFILE: move.profile,
    }
    if move.plan:
        annotations[keys.MOVE_PLAN] = move.plan
    metadata = {"name": move.job, "annotations": annotations}
    return CreateObject(document={"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})
