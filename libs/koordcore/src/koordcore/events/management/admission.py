"""What admission did to an object: one explanation per request that it changed or refused.

Subject `explanations.admission.<resource>=<ns>=<name>`. Not a fact: the event of the accepted object carries the
result. Dry runs are never recorded. The envelope's `based_on` says which facts it was decided on. With them, the object
and the settings, the decision can be repeated.

Source:
    manager spec, 17.3
"""

from typing import Any

from koordcore.events.envelope import AggregateRef, Event, name_token
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="admission", stream="explanations")
class AdmissionDecided(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An object was changed or refused at a door.

    subresource of the request; `resource` then ends with it

    Attributes:
        uid: Of the admission request (webhook) or of the request and document (`koord apply`).
        door: "webhook" or "apply".
        operation: CREATE, UPDATE or DELETE; APPLY for a document that was refused before either was decided.
        user: Who asked, as the API server says; "" at the other door.
        steps: What changed the object, in order: `ClusterColocationProfile/<profile>`, `ExtendedResourceSpec` ...
        rules: Ids of the rules that refused it.
        fields: Where, aligned with `rules`.
        patch: RFC 6902, against the object as submitted; values that could hold a secret are withheld.
        webhook: "mutate" or "validate", whichever was asked; "" at the other door, which goes through both.
        object: As submitted, as far as the log keeps such objects; None: it is not kept (too large, not of the shape of
            its kind, a deletion, or told by an older version).
        old_object: As stored before an update or a deletion, likewise; None also at the other door, whose facts have
            it.
        result: Digest of the kept part after the steps, "" when nothing changed it.
        draws: What draws of profiles with a probability follow from, "" for `uid`.
        settings: Gates and flags that were not at their defaults: `MultiQuotaTree=true`.
        pending: Quotas that were accepted and had not been observed yet: it was judged with them.
    """

    uid: str
    door: str
    resource: str
    namespace: str = ""
    name: str = ""
    operation: str
    user: str = ""
    allowed: bool
    steps: list[str] = []
    rules: list[str] = []
    fields: list[str] = []
    message: str = ""
    patch: list[dict[str, Any]] = []
    webhook: str = ""
    subresource: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    result: str = ""
    draws: str = ""
    settings: list[str] = []
    pending: list[str] = []


def admission_ref(resource: str, namespace: str, name: str) -> AggregateRef:
    """The subject of the explanations of an object; namespace "" for cluster-scoped kinds."""
    parts = (resource, namespace, name) if namespace else (resource, name)
    return AggregateRef("admission", "=".join(name_token(part) for part in parts))
