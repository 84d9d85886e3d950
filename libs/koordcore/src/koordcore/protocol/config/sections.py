"""The sections of slo-controller-config: their layouts and special rules.

Source:
    protocol spec, 6.1 and 6.2
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from koordcore.protocol.config.kinds import JsonObject, Obj, defaults_of
from koordcore.protocol.config.tables import (
    COLOCATION,
    CPU_BURST,
    CPU_NORMALIZATION,
    HOST_APPLICATION,
    INTERFERENCE,
    RESOURCE_AMPLIFICATION,
    RESOURCE_QOS,
    RESOURCE_THRESHOLD,
    SLO_ADJUST,
    SYSTEM,
)


class SectionShape(StrEnum):
    """Layout of the JSON document of a section: where the fields for the cluster and the entries for nodes are.

    Attributes:
        FLAT: Fields for the cluster at the top level, entries for nodes in `nodeConfigs`.
        STRATEGY: Fields for the cluster in `clusterStrategy`, entries for nodes in `nodeStrategies`.
        CLUSTER_ONLY: Fields for the cluster at the top level, no entries for nodes.
    """

    FLAT = "flat"
    STRATEGY = "strategy"
    CLUSTER_ONLY = "cluster-only"


class SectionName(StrEnum):
    """Name of a section of slo-controller-config. The section's key in the ConfigMap has the suffix `-config`."""

    COLOCATION = "colocation"
    RESOURCE_THRESHOLD = "resource-threshold"
    RESOURCE_QOS = "resource-qos"
    CPU_BURST = "cpu-burst"
    SYSTEM = "system"
    HOST_APPLICATION = "host-application"
    CPU_NORMALIZATION = "cpu-normalization"
    RESOURCE_AMPLIFICATION = "resource-amplification"
    SLO_ADJUST = "slo-adjust"
    INTERFERENCE = "interference"

    @property
    def key(self) -> str:
        """Key of the section in the ConfigMap's data."""
        return f"{self.value}-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionTable:
    """Definition of one section of slo-controller-config: its layout, its fields and its special rules.

    Attributes:
        parse_error_event: Reason of the Warning event on the ConfigMap if the text is invalid.
        empty_is_default: Whether an empty text counts as an absent key; otherwise it is invalid (protocol spec, 6.2).
        idle_without_value: Whether the section is absent while its first text is invalid, so that what uses it does
            nothing; otherwise the defaults apply then. Without a key in the ConfigMap, the defaults always apply.
        entry_inherits: Whether an entry for nodes is merged over the fields for the cluster; otherwise it replaces them
            (host applications).
    """

    name: SectionName
    shape: SectionShape
    fields: Obj
    parse_error_event: str
    empty_is_default: bool = False
    idle_without_value: bool = False
    entry_inherits: bool = True

    @property
    def defaults(self) -> JsonObject:
        """Strategy of the cluster if the ConfigMap lacks the key."""
        return defaults_of(self.fields)

    @property
    def entries_key(self) -> str:
        """JSON key of the list of entries for nodes."""
        return "nodeStrategies" if self.shape is SectionShape.STRATEGY else "nodeConfigs"


SECTIONS: dict[SectionName, SectionTable] = {
    table.name: table
    for table in (
        SectionTable(
            name=SectionName.COLOCATION,
            shape=SectionShape.FLAT,
            fields=COLOCATION,
            parse_error_event="ColocationCfgUnmarshalFailed",
            empty_is_default=True,
            idle_without_value=True,
        ),
        *(
            SectionTable(
                name=name, shape=SectionShape.STRATEGY, fields=fields, parse_error_event="SLOCfgUnmarshalFailed"
            )
            for name, fields in (
                (SectionName.RESOURCE_THRESHOLD, RESOURCE_THRESHOLD),
                (SectionName.RESOURCE_QOS, RESOURCE_QOS),
                (SectionName.CPU_BURST, CPU_BURST),
                (SectionName.SYSTEM, SYSTEM),
            )
        ),
        SectionTable(
            name=SectionName.HOST_APPLICATION,
            shape=SectionShape.FLAT,
            fields=HOST_APPLICATION,
            parse_error_event="SLOCfgUnmarshalFailed",
            entry_inherits=False,
        ),
        SectionTable(
            name=SectionName.CPU_NORMALIZATION,
            shape=SectionShape.FLAT,
            fields=CPU_NORMALIZATION,
            parse_error_event="CPUNormalizationCfgUnmarshalFailed",
            idle_without_value=True,
        ),
        SectionTable(
            name=SectionName.RESOURCE_AMPLIFICATION,
            shape=SectionShape.FLAT,
            fields=RESOURCE_AMPLIFICATION,
            parse_error_event="ResourceAmplificationCfgUnmarshalFailed",
            idle_without_value=True,
        ),
        SectionTable(
            name=SectionName.SLO_ADJUST,
            shape=SectionShape.CLUSTER_ONLY,
            fields=SLO_ADJUST,
            parse_error_event="SLOAdjustCfgUnmarshalFailed",
        ),
        SectionTable(
            name=SectionName.INTERFERENCE,
            shape=SectionShape.STRATEGY,
            fields=INTERFERENCE,
            parse_error_event="SLOCfgUnmarshalFailed",
        ),
    )
}
