"""The ConfigMap slo-controller-config as a value, and its next value after a change of the data.

`read_config_map(previous, data)` returns the new configuration and the rejected sections. The caller records one event
per accepted version and one rejection per section. The configuration gives each node its strategies by labels and
annotations.

Source: protocol spec, 6.2; manager spec, 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koordcore.protocol.config import strategy as strategies
from koordcore.protocol.config.fields import typed
from koordcore.protocol.config.sections import SECTIONS, ColocationStrategy, SectionName
from koordcore.protocol.keys import COLOCATION_STRATEGY
from koordcore.values.invalid import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionRejected:
    """A section of slo-controller-config whose text is invalid. The previous value of the section stays in force."""

    section: SectionName
    event_reason: str  # Reason of the Warning event on the ConfigMap
    field: str  # Path of the invalid field; "" for the whole text
    rule: str  # Rule that it violates
    value: object  # Invalid value

    def sentence(self) -> str:
        """Return the rejection as one sentence with section, field, rule and value."""
        return InvalidInput(self.rule, self.value, self.field).at(self.section.key).sentence()


@dataclass(frozen=True, slots=True, kw_only=True)
class SloControllerConfig:
    """The configuration in slo-controller-config with defaults applied, from which each node gets its strategies. A
    section without a key in the ConfigMap has its defaults. If the first text of the section colocation,
    cpu-normalization or resource-amplification is invalid, the section is absent until a valid text comes, and what
    uses it does nothing until then. Any other section then has its defaults.
    """

    sections: Mapping[SectionName, strategies.Section]  # Name -> section; absent ones are left out
    # Whether the ConfigMap is missing or its colocation section was rejected. Metric collection then keeps its old
    # settings.
    colocation_error: bool = False

    def section(self, name: SectionName) -> strategies.Section | None:
        """Return a section; None if it is absent, because its text was never valid (see the class)."""
        return self.sections.get(name)

    def strategy_for(
        self, name: SectionName, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> strategies.Strategy | None:
        """Return the strategy of one section for a node as JSON, with the overrides on the node applied.

        Returns:
            The strategy; None if the section is absent, because its text was never valid (see the class).

        Raises:
            InvalidInput: The bandwidth annotation of the node is invalid (only for the system section).
        """
        section = self.sections.get(name)
        if section is None:
            return None
        strategy = section.strategy_for(labels)
        if name is SectionName.COLOCATION:
            return strategies.override_colocation(strategy, labels, annotations)
        if name is SectionName.SYSTEM:
            return strategies.override_system(strategy, annotations)
        return strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReading:
    config: SloControllerConfig  # The new configuration
    rejections: tuple[SectionRejected, ...]  # Sections with an invalid text
    changed: frozenset[SectionName]  # Sections whose value differs from the previous configuration


def default_config(*, colocation_error: bool = False) -> SloControllerConfig:
    """Return the configuration that applies without a ConfigMap: every section with its defaults. `colocation_error`:
    Whether to mark it as the configuration of a missing ConfigMap. Metric collection then keeps its old settings.
    """
    return SloControllerConfig(
        sections={name: strategies.default_section(name) for name in SectionName}, colocation_error=colocation_error
    )


def read_config_map(previous: SloControllerConfig | None, data: Mapping[str, str] | None) -> ConfigReading:
    """Return the configuration after the data of the ConfigMap changed. If the text or the cluster strategy of a
    section is invalid, this section keeps its previous value. Other sections are not affected. `previous`:
    configuration so far; None at the start. `data`: key -> JSON text. None: the ConfigMap does not exist. Then defaults
    apply and `colocation_error` is set.
    """
    if data is None:
        config = default_config(colocation_error=True)
        return ConfigReading(config=config, rejections=(), changed=_changed(previous, config))
    sections: dict[SectionName, strategies.Section] = {}
    rejections: list[SectionRejected] = []
    for name, table in SECTIONS.items():
        try:
            sections[name] = strategies.read_section(name, data.get(name.key))
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
                sections[name] = strategies.default_section(name)
    refused = {rejection.section for rejection in rejections}
    config = SloControllerConfig(sections=sections, colocation_error=SectionName.COLOCATION in refused)
    return ConfigReading(config=config, rejections=tuple(rejections), changed=_changed(previous, config))


def _changed(previous: SloControllerConfig | None, config: SloControllerConfig) -> frozenset[SectionName]:
    before: Mapping[SectionName, strategies.Section] = {} if previous is None else previous.sections
    return frozenset(name for name in SectionName if before.get(name) != config.sections.get(name))


class NodeStrategies:
    """Colocation strategies of many nodes under one configuration. Create a new object when the configuration changes.
    Nodes with equal entries and without overrides share one value, so a lookup costs only the selector checks
    (measured: 5,000 nodes with 10 entries in well under 100 ms).
    """

    def __init__(self, config: SloControllerConfig) -> None:
        self._config = config
        self._colocation: dict[int, ColocationStrategy] = {}

    @property
    def cluster_colocation_enabled(self) -> bool:
        """Whether the cluster enables colocation. If it does not, no node gets batch resources."""
        section = self._config.section(SectionName.COLOCATION)
        return section is not None and section.cluster["enable"] is True

    def colocation(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> ColocationStrategy | None:
        """Return the colocation strategy of the node with these labels and annotations. None if the colocation section
        is absent, because its text was never valid. `enable` is the value for the node alone. Batch resources also need
        `cluster_colocation_enabled`.
        """
        section = self._config.section(SectionName.COLOCATION)
        if section is None:
            return None
        base = section.strategy_for(labels)
        if COLOCATION_STRATEGY not in annotations and not any(label in labels for label, _ in strategies.RATIO_LABELS):
            # the section keeps its strategies alive, so their identity is a safe key
            known = self._colocation.get(id(base))
            if known is None:
                known = self._colocation[id(base)] = typed(ColocationStrategy, base)
            return known
        return typed(ColocationStrategy, strategies.override_colocation(base, labels, annotations))
