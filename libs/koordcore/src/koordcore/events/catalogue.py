"""The complete catalogue: importing this module imports every aggregate's module."""

from koordcore.events import (
    adjustment,
    admission,
    cluster_topology,
    control,
    custom,
    gang,
    gateway,
    mirror,
    node,
    nodepolicy,
    nodestate,
    observation,
    pod,
    quota,
    quota_profile,
    recommendation,
    schedule_explanation,
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
    gang,
    quota,
    schedule_explanation,
    cluster_topology,
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
