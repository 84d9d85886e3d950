"""Values that reconcilers of a machine export as metrics.

Source: runtime spec, 2.11.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Gauge(NamedTuple):
    """A sample of a metric, without the label of the node.

    Attributes:
        name: Name of the metric without its prefix.
        labels: Label -> value.
        value: The value.
    """

    name: str
    labels: Mapping[str, str]
    value: float
