"""The objects that node agents report, where no API server has them: written from the report as the gateway would.

The gateway says which write brings the object up to date (`gateway.topology_object`, `gateway.node_objects`). Here the
write is carried out on the folded object, and the result is the fact that the gateway would observe afterwards.

Source: agent spec, 4.7; manager spec, 5.4.
"""

from typing import Any, cast

import jsonpatch  # type: ignore[import-untyped]
from koordcore.events.envelope import Draft, event_id, name_from_token
from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved, custom_ref

from koord_manager.domain.cluster.view import TOPOLOGIES, ManagerView
from koord_manager.domain.gateway.node_objects import pending_zones
from koord_manager.domain.gateway.requests import Json, Request
from koord_manager.domain.gateway.topology_object import pending_topology


def node_object_drafts(view: ManagerView, token: str, now: str) -> list[Draft]:
    """Return the next fact about the NodeResourceTopology of a node, or an empty list if it is up to date.

    Two writers share the object: the agent's report comes first, the batch resources of its zones follow once the
    report is folded.

    Args:
        view: The cluster.
        token: Token of the node.
        now: Creation time of a new object, RFC 3339.
    """
    if view.node(token) is None:
        return _deletion(view, token)
    request = pending_topology(view, token) or pending_zones(view, token)
    return [] if request is None else [_written(view, token, request, now)]


def _written(view: ManagerView, token: str, request: Request, now: str) -> Draft:
    name = name_from_token(token)
    ref, stored = custom_ref(TOPOLOGIES, "", name), view.custom(TOPOLOGIES, "", name)
    if request.method == "POST":
        document = cast("Json", request.body)
        identity = {"uid": event_id(f"{token}/{view.state.last_seq(ref)}", ref, 0), "creationTimestamp": now}
        document = {**document, "metadata": {**document["metadata"], **identity}}
    else:
        assert stored is not None
        document = _patched(stored.object, request.body)
    return Draft(ref, CustomObjectObserved(object=document), view.state.last_seq(ref))


def _patched(document: Json | None, operations: object) -> Json:
    return cast("Json", cast("Any", jsonpatch).apply_patch(document, operations))


def _deletion(view: ManagerView, token: str) -> list[Draft]:
    """Return the deletion of the object that the node owned, as the garbage collector of an API server deletes it."""
    name = name_from_token(token)
    stored = view.custom(TOPOLOGIES, "", name)
    if stored is None or stored.object is None or not stored.object["metadata"].get("ownerReferences"):
        return []
    gone = CustomObjectDeleted(kind="NodeResourceTopology", namespace="", name=name)
    return [Draft(custom_ref(TOPOLOGIES, "", name), gone, stored.seq)]
