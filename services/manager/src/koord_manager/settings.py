"""What the manager can be told, besides what every service can be told."""

from typing import ClassVar

from koordcore.service.bus import ElectedSettings
from koordcore.service.settings import Seconds
from pydantic import Field


class ManagerSettings(ElectedSettings):
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
