"""The complete catalogue of events. Importing this module imports the module of every aggregate."""

from koordcore.events import control, log
from koordcore.events.agents import criproxy, hooks, nodestate, observation
from koordcore.events.descheduling import decisions, drain, migration, operation, repack, rounds
from koordcore.events.management import access, adjustment, admission, nodepolicy, quota_profile, recommendation
from koordcore.events.objects import custom, gateway, mirror
from koordcore.events.registry import CATALOGUE
from koordcore.events.scheduling import (
    cluster_topology,
    explanations,
    gang,
    gpu_workload,
    pod,
    quota,
    reservation,
    schedule_explanation,
)
from koordcore.events.scheduling import node_ledger as node

__all__ = ["CATALOGUE", "MODULES"]

MODULES = (
    mirror,
    custom,
    gateway,
    pod,
    node,
    gang,
    quota,
    reservation,
    schedule_explanation,
    cluster_topology,
    gpu_workload,
    nodepolicy,
    adjustment,
    quota_profile,
    recommendation,
    nodestate,
    hooks,
    criproxy,
    drain,
    migration,
    decisions,
    repack,
    operation,
    rounds,
    control,
    log,
    observation,
    explanations,
    admission,
    access,
)
