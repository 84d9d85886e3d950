"""Audit records: who requested what from a service, and the result. Stream: audit. Aggregate: `request.<service>`.

Writers: every service that answers requests of people and programs, and `koord` for computations that it makes itself.
A record is not a fact: no state follows from it.
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="request", stream="audit", ignorable=True)
class RequestAudited(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A request that changes something or costs a lot was answered, or refused because of a missing role.

    Attributes:
        subject: `token:<name>`, `oidc:<claim>`, `bus:<user>` or `anonymous`.
        roles: Roles of the subject; empty for requests over the bus.
        method: HTTP method; `ask` or `work` for requests over the bus; `run` for computations of `koord` itself.
        route: Path of the route as declared; `<service>.<verb>` for requests over the bus.
        dry_run: Whether nothing was to be changed.
        objects: The objects that the request concerned, at most 20, for example "Pod default/web".
        status: HTTP status; requests over the bus use the same numbers.
        request: Id of the request; facts that follow from it have it as causation. "" if no fact can follow.
    """

    subject: str
    roles: tuple[str, ...] = ()
    method: str
    route: str
    dry_run: bool = False
    objects: tuple[str, ...] = ()
    status: int
    request: str = ""
