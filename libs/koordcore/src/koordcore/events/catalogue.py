"""The complete catalogue of events. Importing this module imports the module of every aggregate."""

from koordcore.events import (
    admission,
    cluster,
    criproxy,
    descheduling,
    drain,
    explanations,
    gang,
    gateway,
    log,
    migration,
    nodepolicy,
    nodestate,
    objects,
    observation,
    pod,
    quota,
    recommendation,
    refusals,
    reservation,
    schedule_explanation,
)
from koordcore.events import admission as access
from koordcore.events import log as control
from koordcore.events import migration as repack
from koordcore.events import node_ledger as node
from koordcore.events import nodepolicy as adjustment
from koordcore.events import nodestate as hooks
from koordcore.events import quota as quota_profile
from koordcore.events.registry import CATALOGUE

__all__ = ["CATALOGUE", "MODULES"]

MODULES = (
    objects,
    objects,
    gateway,
    pod,
    node,
    gang,
    quota,
    reservation,
    schedule_explanation,
    cluster,
    cluster,
    nodepolicy,
    adjustment,
    quota_profile,
    recommendation,
    nodestate,
    hooks,
    criproxy,
    drain,
    migration,
    descheduling,
    repack,
    descheduling,
    descheduling,
    control,
    log,
    observation,
    explanations,
    refusals,
    admission,
    access,
)
