"""Nodes and pods of the descheduler from decoded JSON objects."""

from koord_descheduler.domain.view.nodes import NodeView, node_view
from koord_descheduler.domain.view.pods import PodView, pod_view
from koordcore.protocol.objects import node_from_json, pod_from_json


def node_view_from_json(raw: object) -> NodeView:
    return node_view(node_from_json(raw))


def pod_view_from_json(raw: object) -> PodView:
    return pod_view(pod_from_json(raw))
