"""What the scheduler can be told, besides what every service can be told."""

from typing import Annotated, ClassVar

from koordcore.service.settings import Flag, Seconds, ServiceSettings, TextList
from pydantic import Field


class SchedulerSettings(ServiceSettings):
    """Settings of `koord-scheduler`."""

    service: ClassVar[str] = "scheduler"
    about: ClassVar[str] = (
        "Places pods on nodes: folds the log, decides, appends each placement with its explanation. Several may run; "
        "one leads."
    )

    scheduler_name: TextList = Field(
        ("koord-scheduler", "default-scheduler"),
        min_length=1,
        description="Pods whose spec.schedulerName is one of these are placed. The empty name is always among them "
        "when default-scheduler is.",
    )
    pod_initial_backoff: Seconds = Field(1.0, gt=0, description="First wait of a pod whose attempt failed.")
    pod_max_backoff: Seconds = Field(10.0, gt=0, description="Longest wait of a pod whose attempts fail.")
    leader_elect: bool = Field(True, description="Stand for election; without it this instance always leads.")
    lease_duration: Annotated[Seconds, Flag("leader-elect-lease-duration")] = Field(
        15.0, gt=0, description="How long others wait for a leader that does not renew, in the host's time."
    )
    lease_renew_deadline: Annotated[Seconds, Flag("leader-elect-renew-deadline")] = Field(
        10.0, gt=0, description="When a leader that could not renew stops leading, in the host's time."
    )
    lease_retry: Annotated[Seconds, Flag("leader-elect-retry-period")] = Field(
        2.0, gt=0, description="How often a leader renews and others look, in the host's time."
    )

    def names(self) -> frozenset[str]:
        """Scheduler names with the one that a pod without a name means."""
        names = frozenset(self.scheduler_name)
        return names | {""} if "default-scheduler" in names else names
