"""The ConfigMap slo-controller-config: parse, apply defaults, merge, validate, and give each node its strategies.

Reading order: kinds.py (types of fields), tables.py (fields of every section), sections.py (list of sections), parse.py
(text to values), strategy.py (effective strategy of a node), config_map.py (all sections), typed.py (typed strategies),
agent.py and node_slo.py (NodeSLO of a node), admission.py and overlap.py (the webhook).
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
