"""The complete catalogue: importing this module imports every aggregate's module."""

from koordcore.events import (
    adjustment,
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
    quota_profile,
    recommendation,
    verdict,
)
from koordcore.events.registry import CATALOGUE

__all__ = ["CATALOGUE", "MODULES"]

MODULES = (
    mirror,
    custom,
    gateway,
    pod,
    node,
    nodepolicy,
    adjustment,
    quota_profile,
    recommendation,
    nodestate,
    control,
    observation,
    verdict,
    admission,
)
