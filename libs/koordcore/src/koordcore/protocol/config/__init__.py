"""slo-controller-config: parse it, apply defaults, merge, validate, and return the strategies of a node.

Reading order: kinds.py (vocabulary), tables.py (the fields of every section), sections.py (which there are), parse.py
(text to values), strategy.py (the effective strategy of a node), config_map.py (all sections, previous + data -> next),
typed.py (the two strategies that services compute with), agent.py and node_slo.py (what travels to a node),
admission.py with overlap.py (the webhook's judgement).
"""

from koordcore.protocol.config.admission import (
    ConfigReview,
    NodeLabels,
    Reason,
    config_faults,
    validate_config_map,
    validate_node_labels,
)
from koordcore.protocol.config.agent import AGENT_QOS_DEFAULTS, complete_strategy
from koordcore.protocol.config.config_map import (
    ConfigReading,
    NodeStrategies,
    SectionRejected,
    SloControllerConfig,
    default_config,
    read_config_map,
)
from koordcore.protocol.config.node_slo import RenderedNodeSlo, complete_node_slo, render_node_slo, update_extensions
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.config.strategy import Section, Strategy, read_section
from koordcore.protocol.config.typed import (
    CalculatePolicy,
    ColocationStrategy,
    CpuEvictPolicy,
    CpuSuppressPolicy,
    MemoryCollectPolicy,
    ResourceThresholdStrategy,
    colocation_strategy,
    resource_threshold_strategy,
)

__all__ = [
    "AGENT_QOS_DEFAULTS",
    "CalculatePolicy",
    "ColocationStrategy",
    "ConfigReading",
    "ConfigReview",
    "CpuEvictPolicy",
    "CpuSuppressPolicy",
    "MemoryCollectPolicy",
    "NodeLabels",
    "NodeStrategies",
    "Reason",
    "RenderedNodeSlo",
    "ResourceThresholdStrategy",
    "Section",
    "SectionName",
    "SectionRejected",
    "SloControllerConfig",
    "Strategy",
    "colocation_strategy",
    "complete_node_slo",
    "complete_strategy",
    "config_faults",
    "default_config",
    "read_config_map",
    "read_section",
    "render_node_slo",
    "resource_threshold_strategy",
    "update_extensions",
    "validate_config_map",
    "validate_node_labels",
]
