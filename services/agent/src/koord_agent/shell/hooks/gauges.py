"""Values that reconcilers of a machine export as metrics.

Source: runtime spec, 2.11.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Gauge(NamedTuple):
    """A sample of a metric, without the label of the node."""

    name: str  # Name of the metric without its prefix
    labels: Mapping[str, str]
    value: float
