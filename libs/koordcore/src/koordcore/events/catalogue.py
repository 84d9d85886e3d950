"""The complete catalogue: importing this module imports every aggregate's module."""

from koordcore.events import (
    admission,
    control,
    custom,
    gateway,
    mirror,
    node,
    nodepolicy,
    nodestate,
    observation,
    pod,
    verdict,
)
from koordcore.events.registry import CATALOGUE

__all__ = ["CATALOGUE", "MODULES"]

MODULES = (mirror, custom, gateway, pod, node, nodepolicy, nodestate, control, observation, verdict, admission)
