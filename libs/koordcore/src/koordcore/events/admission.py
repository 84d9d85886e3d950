"""What happened to requests. Neither is a fact: no state follows from them.

`AdmissionDecided` (stream explanations, `explanations.admission.<resource>=<ns>=<name>`): a request that admission
changed or denied. Dry runs are never recorded. The envelope's `based_on` names the facts that it used. With them, the
object and the settings, the decision can be repeated.

`RequestAudited` (stream audit, `request.<service>`): who requested what, and the result. Writers: every service that
answers requests of people and programs, and `koord` for computations that it makes itself.

Source: manager spec, 17.3.
"""

from typing import Any

from koordcore.events.envelope import AggregateRef, Event, name_token
from koordcore.events.registry import CATALOGUE


def _source_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of schema 1 with the field `door` renamed to `source`."""
    return {"source" if name == "door" else name: value for name, value in body.items()}


@CATALOGUE.register(kind="admission", stream="explanations", schema=2, upcasters={1: _source_of})
class AdmissionDecided(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Admission changed or denied an object."""

    uid: str  # Uid of the admission request, or of the request and document of `koord apply`
    source: str  # "webhook" or "apply"
    resource: str  # Plural name of the resource; with a subresource, it ends with `/<subresource>`
    namespace: str = ""  # Namespace of the object; empty for cluster-scoped kinds
    name: str = ""  # Name of the object, or its `generateName`
    operation: str  # CREATE, UPDATE or DELETE; APPLY for a document that was denied before either was decided
    user: str = ""  # User of the API server; empty for "apply"
    allowed: bool  # Whether the object was admitted
    # Steps that changed the object, in order: `ClusterColocationProfile/<profile>`, `ExtendedResourceSpec` ...
    steps: list[str] = []
    rules: list[str] = []  # Ids of the rules that denied the object; empty if it was admitted
    fields: list[str] = []  # Field of each rule, aligned with `rules`
    message: str = ""  # The denial as a sentence
    # RFC 6902, against the object as submitted; values that may be secret are withheld.
    patch: list[dict[str, Any]] = []
    webhook: str = ""  # "mutate" or "validate"; empty for "apply", which runs both
    subresource: str = ""  # Subresource of the request
    # The object as submitted, reduced to the fields that the log keeps. None if it is too large, has wrong types, was
    # deleted, or was recorded by an older version.
    object: dict[str, Any] | None = None
    # The stored object before an update or a deletion, reduced in the same way; None for "apply".
    old_object: dict[str, Any] | None = None
    result: str = ""  # Digest of the reduced object after the steps; empty if no step changed it
    draws: str = ""  # Seed of the random draws of profiles with a probability; empty: `uid` is the seed
    settings: list[str] = []  # Gates and flags that differ from their defaults: `MultiQuotaTree=true`
    pending: list[str] = []  # Quotas that were accepted but not yet folded; the decision counted them


def admission_ref(resource: str, namespace: str, name: str) -> AggregateRef:
    """Return the aggregate of the admission explanations of one object.

    Args:
        resource: Plural name of the resource, for example "pods".
        namespace: "" for cluster-scoped kinds.
    """
    parts = (resource, namespace, name) if namespace else (resource, name)
    return AggregateRef("admission", "=".join(name_token(part) for part in parts))


@CATALOGUE.register(kind="request", stream="audit", ignorable=True)
class RequestAudited(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A request that changes something or costs a lot was answered, or refused because of a missing role."""

    subject: str  # `token:<name>`, `oidc:<claim>`, `bus:<user>` or `anonymous`
    roles: tuple[str, ...] = ()  # Roles of the subject; empty for requests over the bus
    method: str  # HTTP method; `ask` or `work` for requests over the bus; `run` for computations of `koord` itself
    route: str  # Path of the route as declared; `<service>.<verb>` for requests over the bus
    dry_run: bool = False  # Whether nothing was to be changed
    objects: tuple[
        str, ...
    ] = ()  # The first 20 objects that the request concerned, those that it changed first: "Pod default/web"
    status: int  # HTTP status; requests over the bus use the same numbers
    request: str = ""  # Id of the request; facts that follow from it have it as causation. "" if no fact can follow.
