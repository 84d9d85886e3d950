"""Settings that only the descheduler has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from koordcore.service.bus import ElectedSettings
from koordcore.service.configuration.gates import Gate, Stage
from koordcore.service.configuration.settings import Flag
from pydantic import Field

from koord_descheduler.domain.config.document import DeschedulerConfiguration


class DeschedulerSettings(ElectedSettings):
    """All flags and environment variables of `koord-descheduler`."""

    service: ClassVar[str] = "descheduler"
    about: ClassVar[str] = (
        "Moves pods off nodes that they no longer fit: runs rounds of plugins over the folded log, and asks for the "
        "eviction of pods. Several instances may run; one leads."
    )
    known_gates: ClassVar[Sequence[Gate]] = tuple(
        Gate(name, default=False, stage=Stage.ALPHA)
        for name in (
            "DisablePVCReservation",
            "PriorityTransformer",
            "PreemptionPolicyTransformer",
            "ReplaceResourcesTransformer",
        )
    )

    config: Path | None = Field(
        None, description="DeschedulerConfiguration. Without it: the default profile, which has no plugins that evict."
    )
    write_config_to: Path | None = Field(None, description="Write the effective configuration to this file and exit.")
    http_host: Annotated[str, Flag("address")] = Field("127.0.0.1", description="Address to serve on.")
    http_port: Annotated[int, Flag("port")] = Field(
        0, ge=0, le=65535, description="Port to serve on; 0 for a free one, which is logged."
    )

    secure_port: int = Field(
        10258, ge=0, le=65535, description="Accepted without effect: --http-port has TLS with --http-cert-file."
    )
    leader_elect_resource_lock: str = Field(
        "leases", description="Accepted without effect: the lease is a key of the log."
    )
    leader_elect_resource_name: str = Field("koord-descheduler", description="Accepted without effect.")
    leader_elect_resource_namespace: str = Field("koordinator-system", description="Accepted without effect.")
    log_verbosity: Annotated[int, Flag("v")] = Field(0, description="Accepted without effect: see --log-level.")
    logtostderr: bool = Field(True, description="Accepted without effect: logs are always written there.")

    def with_leader_election(self, configuration: DeschedulerConfiguration) -> "DeschedulerSettings":
        """Return the settings with the leader election of a configuration file. Flags that were given come first.

        Source:
            descheduler spec, 2 (precedence)
        """
        if self.config is None:
            return self
        election = configuration.leader_election
        of_file = {
            "leader_elect": election.leader_elect,
            "lease_duration": election.lease_duration,
            "lease_renew_deadline": election.renew_deadline,
            "lease_retry": election.retry_period,
        }
        return self.model_copy(update={name: of_file[name] for name in of_file.keys() - self.model_fields_set})
