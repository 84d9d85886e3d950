"""Read quotas from the API server that the fold does not contain yet, before a request is refused because of them.

A parent quota and its child may be created by one `kubectl apply`, and different replicas may admit them. The replica
that admits the child learns of the parent from the log, perhaps a moment too late.

Source:
    manager spec, 13.2 (last paragraph)
"""

from collections.abc import Callable
from typing import Any, cast

from koordcore.protocol import keys
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.context.quota import Quota, read_quota
from koord_manager.domain.admission.json_object import seen, text
from koord_manager.domain.admission.request import Request
from koord_manager.shell.gateway.api import Unreachable
from koord_manager.shell.webhooks.quota_gate import ObjectsApi

_PATH = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"


def missing_quotas(request: Request, is_known: Callable[[str], bool]) -> list[str]:
    """Return the names of the quotas that a request refers to and that are not known.

    Args:
        request: Request about a quota or a pod; other requests refer to no quota.
        is_known: Whether the fold contains a quota of a name, or this replica accepted a request about it.
    """
    if request.resource not in ("elasticquotas", "pods") or request.subresource:
        return []
    try:
        if request.resource == "pods":
            names = [text(seen(request.object, "metadata", "labels"), keys.QUOTA_NAME)]
        else:
            quotas = [read_quota(found) for found in (request.object, request.old_object) if found]
            names = [name for quota in quotas for name in (quota.parent, quota.name)]
            if not request.old_object:
                names = names[:1]  # a quota that is created is known by nobody
    except InvalidInput:
        return []
    return [name for name in dict.fromkeys(names) if name and name != keys.ROOT_QUOTA and not is_known(name)]


async def read_quotas(api: ObjectsApi, names: list[str]) -> list[Quota]:
    """Return the quotas with these names that the API server has; none if it does not answer.

    Args:
        api: Client of the API server.
        names: Names of quotas, in any namespace.
    """
    found: list[Quota] = []
    for name in names:
        try:
            answer = await api.request("GET", _PATH, parameters={"fieldSelector": f"metadata.name={name}"})
            items = codec.decode(answer.body, dict[str, Any]).get("items") if answer.ok else None
            found += [read_quota(item) for item in cast("list[dict[str, Any]]", items or [])]
        except (Unreachable, codec.DecodeError, InvalidInput):
            continue  # the request is refused, as the fold says
    return found
