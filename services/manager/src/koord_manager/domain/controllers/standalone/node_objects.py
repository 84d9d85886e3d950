"""Write the objects that node agents report, in a cluster without an API server.

The gateway's functions decide which write brings an object up to date (`gateway.objects`). Here the
write is applied to the folded object. The result is the fact that the gateway would observe after the write.

Source:
    agent spec, 4.7, 4.8; manager spec, 5.4.
"""

from typing import Any, Final, cast

import jsonpatch  # type: ignore[import-untyped]
from koordcore.events.envelope import Draft, event_id, name_from_token
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref

from koord_manager.domain.cluster.view import DEVICES, TOPOLOGIES, ManagerView
from koord_manager.domain.gateway.objects.device_object import pending_device
from koord_manager.domain.gateway.objects.node_objects import pending_zones
from koord_manager.domain.gateway.objects.topology_object import pending_topology
from koord_manager.domain.gateway.requests import Json, Request

_KINDS: Final = {"NodeResourceTopology": TOPOLOGIES, "Device": DEVICES}


def node_object_drafts(view: ManagerView, token: str, now: str) -> list[Draft]:
    """Return the facts that update NodeResourceTopology and Device of a node, or an empty list if they are up to date.

    If both the agent's report and the batch resources of zones have to be written, the first call returns the report
    and the next call the batch resources. If the node is gone, return the facts that delete the objects it owned.

    Args:
        now: Creation time of a new object, RFC 3339.
    """
    if view.node(token) is None:
        return [draft for kind, plural in _KINDS.items() for draft in _deletion(view, token, kind, plural)]
    topology = pending_topology(view, token) or pending_zones(view, token)
    device = pending_device(view, token)
    return [
        _written(view, token, plural, request, now)
        for plural, request in ((TOPOLOGIES, topology), (DEVICES, device))
        if request is not None
    ]


def _written(view: ManagerView, token: str, plural: str, request: Request, now: str) -> Draft:
    name = name_from_token(token)
    ref, stored = custom_ref(plural, "", name), view.custom(plural, "", name)
    if request.method == "POST":
        document = cast("Json", request.body)
        identity = {"uid": event_id(f"{token}/{view.state.position}", ref, 0), "creationTimestamp": now}
        document = {**document, "metadata": {**document["metadata"], **identity}}
    else:
        assert stored is not None
        document = _patched(stored.object, request.body)
    return Draft(ref, CustomObjectObserved(object=document), view.state.last_seq(ref))


def _patched(document: Json | None, operations: object) -> Json:
    return cast("Json", cast("Any", jsonpatch).apply_patch(document, operations))


def _deletion(view: ManagerView, token: str, kind: str, plural: str) -> list[Draft]:
    """Return the deletion of an object that the node owned, as the garbage collector of an API server deletes it."""
    name = name_from_token(token)
    stored = view.custom(plural, "", name)
    if stored is None or not stored.object["metadata"].get("ownerReferences"):
        return []
    return [Draft(custom_ref(plural, "", name), CustomObjectDeleted(kind=kind, namespace="", name=name), stored.seq)]
