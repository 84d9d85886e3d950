"""Vectors of the descheduler about the view: node fit, order of pods, nodes of a round."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koord_descheduler.domain.framework.round import profile_nodes, round_nodes
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import native_misfits
from koord_descheduler.domain.view.orders import give_up_order
from koordcore.protocol.objects import LabelSelector, object_from_json
from koordcore.protocol.selectors import EVERYTHING, Selector, compile_selector
from support.descheduler.views import node_view_from_json, pod_view_from_json


@adapter("descheduler.node_fit", exact_text=("reasons",), sets=("reasons",))
def node_fit(given: dict[str, Json]) -> dict[str, Json]:
    """The native check of a pod and a node (descheduler spec, 1.3)."""
    node = node_view_from_json(given["node"])
    pods = tuple(pod_view_from_json(raw) for raw in given.get("pods") or ())
    cluster = ClusterView(now=0.0, nodes=(node,), pods=pods)
    misfits = native_misfits(pod_view_from_json(given["pod"]), node, cluster)
    return {"fits": not misfits, "reasons": misfits}


@adapter("descheduler.pod_sort", exact_text=("order",))
def pod_sort(given: dict[str, Json]) -> dict[str, Json]:
    """The order in which pods are given up (descheduler spec, 1.5)."""
    return {"order": [pod.name for pod in give_up_order(pod_view_from_json(raw) for raw in given["pods"])]}


@adapter("descheduler.round_nodes", exact_text=("profiles",))
def round_nodes_of_profiles(given: dict[str, Json]) -> dict[str, Json]:
    """The nodes of a round and of its profiles (descheduler spec, 4)."""
    nodes = tuple(node_view_from_json(raw) for raw in given["nodes"])
    selected = round_nodes(ClusterView(now=0.0, nodes=nodes, pods=()), _selector(given.get("nodeSelector")))
    return {
        "profiles": {
            profile["name"]: [node.name for node in profile_nodes(selected, _selector(profile.get("nodeSelector")))]
            for profile in given["profiles"]
        }
    }


def _selector(raw: Json) -> Selector:
    return EVERYTHING if raw is None else compile_selector(object_from_json(raw, LabelSelector))
