"""Whether the data of slo-controller-config would be taken: asked before it is applied.

source    protocol spec, 6.2
"""

from collections.abc import Mapping

from koordcore.protocol.config.config_map import read_config_map
from koordcore.values.invalid import InvalidInput

SLO_CONFIG_NAMESPACE = "koordinator-system"
SLO_CONFIG_NAME = "slo-controller-config"


def check_slo_config(data: Mapping[str, str]) -> list[InvalidInput]:
    """What is wrong with each section that cannot be taken; empty when every section can.

    returns   violations whose path begins with the key of the section
    """
    return [
        InvalidInput(
            rejection.rule,
            rejection.value,
            f"{rejection.section.key}.{rejection.field}" if rejection.field else rejection.section.key,
        )
        for rejection in read_config_map(None, data).rejections
    ]
