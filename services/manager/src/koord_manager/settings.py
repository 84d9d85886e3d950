"""What the manager can be told, besides what every service can be told."""

from typing import Annotated, ClassVar

from koordcore.service.settings import Flag, Seconds, ServiceSettings
from pydantic import Field


class ManagerSettings(ServiceSettings):
    """Settings of `koord-manager`."""

    service: ClassVar[str] = "manager"
    about: ClassVar[str] = (
        "Admits and mirrors objects, turns usage reports into batch resources, renders each node's policy. Several may "
        "run; one leads."
    )

    control_interval: Seconds = Field(0.5, gt=0, description="Pause between control rounds, in the host's time.")
    desired_interval: Seconds = Field(
        5.0, ge=0, description="How long changes of a node's desired state are gathered before they are written again."
    )
    leader_elect: Annotated[bool, Flag("enable-leader-election")] = Field(
        True, description="Stand for election; without it this instance always leads."
    )
    lease_duration: Annotated[Seconds, Flag("leader-elect-lease-duration")] = Field(
        15.0, gt=0, description="How long others wait for a leader that does not renew, in the host's time."
    )
    lease_renew_deadline: Annotated[Seconds, Flag("leader-elect-renew-deadline")] = Field(
        10.0, gt=0, description="When a leader that could not renew stops leading, in the host's time."
    )
    lease_retry: Annotated[Seconds, Flag("leader-elect-retry-period")] = Field(
        2.0, gt=0, description="How often a leader renews and others look, in the host's time."
    )
