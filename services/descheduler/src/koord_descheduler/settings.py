"""Settings that only the descheduler has."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from koordcore.service.component import Address, ComponentSettings
from koordcore.service.flags import Gate, Stage
from pydantic import Field

from koord_descheduler.domain.config.document import DeschedulerConfiguration


class DeschedulerSettings(ComponentSettings):
    """All flags and environment variables of `koord-descheduler`."""

    service: ClassVar[str] = "descheduler"
    about: ClassVar[str] = (
        "Moves pods off nodes that they no longer fit: runs rounds of plugins over the folded log, and asks for the "
        "eviction of pods. Several instances may run; one leads."
    )
    known_gates: ClassVar[Sequence[Gate]] = (
        *(Gate(name, False, Stage.ALPHA) for name in ("DisablePVCReservation", "PriorityTransformer")),
        *(
            Gate(name, False, Stage.ALPHA, "no part of a round depends on the fields that it replaces")
            for name in ("PreemptionPolicyTransformer", "ReplaceResourcesTransformer")
        ),
    )

    config: Path | None = Field(
        None, description="DeschedulerConfiguration. Without it: the default profile, which has no plugins that evict."
    )
    write_config_to: Path | None = Field(None, description="Write the effective configuration to this file and exit.")
    secure_port: int = Field(
        10258, ge=0, le=65535, description="Further port, with TLS, if --tls-cert-file is given; 0: none."
    )

    def with_leader_election(self, configuration: DeschedulerConfiguration) -> "DeschedulerSettings":
        """Flags that were given keep their values.

        Without a file, nothing changes (descheduler spec, 2 (precedence)).
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

    def plain_addresses_with(
        self, written: DeschedulerConfiguration, effective: DeschedulerConfiguration
    ) -> list[Address]:
        """Addresses to serve on without TLS of their own; none if neither flags nor file have any (descheduler spec, 2
        (flags)).

        With a file, those of the flags do not count. `written`: the file as it was decoded. `effective`: with all
        defaults.
        """
        if self.config is None or not (
            self.plain_addresses or {"metrics_bind_address", "healthz_bind_address"} & written.model_fields_set
        ):
            return self.plain_addresses
        both = (effective.metrics_bind_address, effective.healthz_bind_address)
        return [(host.strip("[]"), int(port)) for host, _, port in (text.rpartition(":") for text in both)]
