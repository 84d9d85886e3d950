"""The ConfigMap slo-controller-config as a value, and how it changes with the data.

`read_config_map(previous, data)` is pure: it gives the new configuration and what was refused; the caller records one
event per accepted version and one rejection per section. The configuration answers for a node by its labels and
annotations. Used by the manager's overcommit and NodeSLO controllers and by the agent.

Source:
    protocol spec, 6.2; manager spec, 3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koordcore.protocol.config.sections import SECTIONS, SectionName
from koordcore.protocol.config.strategy import (
    RATIO_LABELS,
    Section,
    Strategy,
    default_section,
    override_colocation,
    override_system,
    read_section,
)
from koordcore.protocol.config.typed import (
    ColocationStrategy,
    ResourceThresholdStrategy,
    colocation_strategy,
    resource_threshold_strategy,
)
from koordcore.protocol.keys import COLOCATION_STRATEGY
from koordcore.values.invalid import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionRejected:
    """A section whose text was rejected; its previous value stays in force.

    Attributes:
        event_reason: Reason of the Warning event on the ConfigMap.
        field: As in InvalidInput; field is "" for the document itself.
        rule: As in InvalidInput; field is "" for the document itself.
        value: As in InvalidInput; field is "" for the document itself.
    """

    section: SectionName
    event_reason: str
    field: str
    rule: str
    value: object

    def sentence(self) -> str:
        """Return one line for a person."""
        return InvalidInput(self.rule, self.value, self.field).at(self.section.key).sentence()


@dataclass(frozen=True, slots=True, kw_only=True)
class SloControllerConfig:
    """All sections, resolved.

    A section without any accepted value so far is absent from `sections` when its readers must stay idle (colocation,
    cpu-normalization, resource-amplification); the others then stand at their defaults.

    Attributes:
        colocation_error: The ConfigMap is missing, or its colocation section was refused: collectors keep the old spec.
    """

    sections: Mapping[SectionName, Section]
    colocation_error: bool = False

    def section(self, name: SectionName) -> Section | None:
        """Return the resolved section; None = never accepted, stay idle."""
        return self.sections.get(name)

    def strategy_for(
        self, name: SectionName, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> Strategy | None:
        """Return the effective strategy of a node in wire spelling, node-level overrides included; None = stay idle.

        Raises:
            InvalidInput: The system section when the node's bandwidth annotation is malformed.
        """
        section = self.sections.get(name)
        if section is None:
            return None
        strategy = section.strategy_for(labels)
        if name is SectionName.COLOCATION:
            return override_colocation(strategy, labels, annotations)
        if name is SectionName.SYSTEM:
            return override_system(strategy, annotations)
        return strategy

    def is_colocation_enabled(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
        """Cluster enable AND the node's effective enable: a disabled cluster cannot be re-enabled per node."""
        section = self.sections.get(SectionName.COLOCATION)
        if section is None or not section.cluster["enable"]:
            return False
        strategy = override_colocation(section.strategy_for(labels), labels, annotations)
        return strategy["enable"] is True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReading:
    """What reading the ConfigMap gave; changed = sections whose resolved value differs from the previous one."""

    config: SloControllerConfig
    rejections: tuple[SectionRejected, ...]
    changed: frozenset[SectionName]


def default_config(*, colocation_error: bool = False) -> SloControllerConfig:
    """Return the configuration without a ConfigMap: every section with its defaults."""
    return SloControllerConfig(
        sections={name: default_section(name) for name in SectionName}, colocation_error=colocation_error
    )


def read_config_map(previous: SloControllerConfig | None, data: Mapping[str, str] | None) -> ConfigReading:
    """Return the configuration after the data of the ConfigMap changed to `data`.

    A section that cannot be parsed or whose cluster strategy is invalid keeps its previous value; others go on.

    Args:
        previous: The configuration so far; None = at start.
        data: Key -> JSON text; None = the ConfigMap does not exist: defaults, with colocation in error status.
    """
    if data is None:
        config = default_config(colocation_error=True)
        return ConfigReading(config=config, rejections=(), changed=_changed(previous, config))
    sections: dict[SectionName, Section] = {}
    rejections: list[SectionRejected] = []
    for name, table in SECTIONS.items():
        try:
            sections[name] = read_section(name, data.get(name.key))
        except InvalidInput as error:
            rejections.append(
                SectionRejected(
                    section=name,
                    event_reason=table.parse_error_event,
                    field=error.path,
                    rule=error.rule,
                    value=error.value,
                )
            )
            kept = previous.sections.get(name) if previous is not None else None
            if kept is not None:
                sections[name] = kept
            elif not table.idle_without_value:
                sections[name] = default_section(name)
    refused = {rejection.section for rejection in rejections}
    config = SloControllerConfig(sections=sections, colocation_error=SectionName.COLOCATION in refused)
    return ConfigReading(config=config, rejections=tuple(rejections), changed=_changed(previous, config))


def _changed(previous: SloControllerConfig | None, config: SloControllerConfig) -> frozenset[SectionName]:
    before: Mapping[SectionName, Section] = {} if previous is None else previous.sections
    return frozenset(name for name in SectionName if before.get(name) != config.sections.get(name))


class NodeStrategies:
    """Typed strategies of many nodes under one configuration; made anew when the configuration changes.

    Nodes that fall under the same entry and carry no override share one value, so answering for a node costs its
    selector checks (measured: 5,000 nodes with 10 entries in well under 100 ms).
    """

    def __init__(self, config: SloControllerConfig) -> None:
        self._config = config
        self._colocation: dict[int, ColocationStrategy] = {}
        self._threshold: dict[int, ResourceThresholdStrategy] = {}

    @property
    def cluster_colocation_enabled(self) -> bool:
        """The cluster's switch: without it no node computes batch resources, whatever its own strategy says."""
        section = self._config.section(SectionName.COLOCATION)
        return section is not None and section.cluster["enable"] is True

    def colocation(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> ColocationStrategy | None:
        """Return the node's effective colocation strategy; None = never accepted, stay idle.

        `enable` is the node's own word; whether batch resources are computed also needs cluster_colocation_enabled.
        """
        section = self._config.section(SectionName.COLOCATION)
        if section is None:
            return None
        base = section.strategy_for(labels)
        if COLOCATION_STRATEGY not in annotations and not any(label in labels for label, _ in RATIO_LABELS):
            # the section keeps its strategies alive, so their identity is a safe key
            known = self._colocation.get(id(base))
            if known is None:
                known = self._colocation[id(base)] = colocation_strategy(base)
            return known
        return colocation_strategy(override_colocation(base, labels, annotations))

    def threshold(self, labels: Mapping[str, str]) -> ResourceThresholdStrategy:
        """Return the node's threshold strategy."""
        section = self._config.sections[SectionName.RESOURCE_THRESHOLD]
        base = section.strategy_for(labels)
        known = self._threshold.get(id(base))
        if known is None:
            known = self._threshold[id(base)] = resource_threshold_strategy(base)
        return known
