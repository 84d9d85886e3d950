"""Check the data of slo-controller-config before it comes into force.

Source:
    protocol spec, 6.2
"""

from collections.abc import Mapping, Sequence

from koordcore.protocol.config.admission import NodeLabels, validate_config_map
from koordcore.protocol.config.config_map import read_config_map
from koordcore.values.invalid import InvalidInput

SLO_CONFIG_NAMESPACE = "koordinator-system"
SLO_CONFIG_NAME = "slo-controller-config"


def check_slo_config(
    data: Mapping[str, str], old_data: Mapping[str, str], nodes: Sequence[NodeLabels]
) -> list[InvalidInput]:
    """Return the violations in the sections of slo-controller-config, or an empty list if all are valid.

    If sections cannot be read, return one violation for each of them. Otherwise return the first broken rule only.

    Args:
        data: The data to check.
        old_data: The data in force, whose unchanged sections are not checked again.
        nodes: Every existing node, because no two entries of a section may select the same node.

    Returns:
        Violations whose path begins with the key of the section.

    Source:
        protocol spec, 6.2 and 6.11
    """
    unreadable = [
        InvalidInput(
            rejection.rule,
            rejection.value,
            f"{rejection.section.key}.{rejection.field}" if rejection.field else rejection.section.key,
        )
        for rejection in read_config_map(None, data).rejections
    ]
    if unreadable:
        return unreadable
    result = validate_config_map(data, old_data, nodes, check_names=False)
    if result.allowed:
        return []
    return [InvalidInput(result.rule or result.message, result.value, result.field or str(result.reason))]
