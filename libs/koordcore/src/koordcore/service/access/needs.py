"""The role that each HTTP route of every service needs: none, `metrics`, `view` or `operate`; and who sends a request.

The table is the only place with these roles. A route that it does not list needs `operate`. A test compares the table
with the routes in the source of all services. Next module to read: `gate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from starlette.routing import compile_path

READS: Final = ("GET",)


class Role(StrEnum):
    """Roles of a subject. `operate` includes `view`, and `view` includes `metrics`: names of objects in metrics."""

    METRICS = "metrics"
    VIEW = "view"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Access rule of one route: role, audit and cost of its requests."""

    path: str  # Path of the route, with parameters in braces as in Starlette
    methods: tuple[str, ...] = READS  # HTTP methods for which the entry holds. HEAD counts as GET.
    role: Role | None = Role.VIEW  # Role of the subject; None: the route answers everybody
    # Whether a route that answers everybody shows more to a sender with credentials.
    knows_sender: bool = False
    is_audited: bool = False  # Whether a request leaves an audit record: it changes something, or costs a lot
    # Tokens that a request takes from the bucket of its subject, or of its address if it has none; 0: no limit.
    cost: float = 1.0


def _public(*paths: str, methods: tuple[str, ...] = READS, cost: float = 0.0) -> list[Need]:
    return [Need(path=path, methods=methods, role=None, cost=cost) for path in paths]


def _metrics(*paths: str) -> list[Need]:
    return [Need(path=path, role=None, cost=0.0, knows_sender=True) for path in paths]


def _view(*paths: str) -> list[Need]:
    return [Need(path=path) for path in paths]


def _operate(method: str, *paths: str, cost: float = 10.0) -> list[Need]:
    return [Need(path=path, methods=(method,), role=Role.OPERATE, is_audited=True, cost=cost) for path in paths]


# The access rule of a request whose method and path have no entry in the table.
UNLISTED: Final = Need(path="", role=Role.OPERATE)

NEEDS: Final[Sequence[Need]] = (
    # Every service. The kubelet sends no credentials.
    *_public("/healthz", "/livez", "/readyz"),
    # Without credentials, pages of metrics hold no series with names of objects (`telemetry.metrics`).
    *_metrics("/metrics", "/all-metrics", "/internal-metrics", "/external-metrics"),
    Need(path="/metrics/resources", role=Role.METRICS),  # as kube-scheduler: each line names a pod
    # Login: it is for those who have no session yet. The scripts and styles of the dashboard hold no data.
    *_public("/auth/login", "/auth/settings", "/assets/{name:path}"),
    *_public("/auth/start", "/auth/callback", cost=10.0),
    *_public("/auth/token", "/auth/logout", methods=("POST",), cost=10.0),
    *_view("/auth/whoami", "/configz"),
    # Webhooks of the manager: the API server sends no credentials; TLS and the NetworkPolicy protect them.
    *_public("/mutate-{kind}", "/validate-{kind}", "/convert", methods=("POST",)),
    *_view("/elasticQuota"),
    # The manager's API.
    *_operate("POST", "/v1/apply", "/v1/delete"),
    *_view("/v1/objects/{kind}", "/v1/objects/{kind}/{name:path}", "/v1/names/{kind}", "/v1/state", "/v1/leader"),
    # The projector: dashboard and read API.
    *_view("/", "/openapi.json", "/api/{path:path}"),
    *_operate("POST", "/admin/rebuild", cost=100.0),
    # The scheduler.
    *_view("/queue", "/apis/v1/{path:path}"),
    *_operate("PUT", "/debug/flags/{flag}"),
    # Every service that has them: a profile takes time of the process, and stacks show its code.
    *_operate("GET", "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/stacks"),
    # The agent.
    *_view("/events", "/simulation"),
    *_operate("PUT", "/simulation", "/simulation/devices", "/simulation/inventory"),
)


_PATTERNS: Final = tuple((need, compile_path(need.path)[0]) for need in NEEDS)


@lru_cache(maxsize=1024)
def need_of(method: str, path: str) -> Need:
    """Return the access rule of the route to which a request goes. The rule says which role the sender needs (none,
    `metrics`, `view` or `operate`), whether the request is audited, and how many tokens it takes from the rate limit.
    HEAD counts as GET. If no route of the table matches method and path, the result is `UNLISTED`: the role `operate`,
    no audit, one token.

    `method`: HTTP method in upper case. `path`: path of the request, decoded.
    """
    asked = "GET" if method == "HEAD" else method
    for need, pattern in _PATTERNS:
        if asked in need.methods and pattern.match(path):
            return need
    return UNLISTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The sender of a request."""

    subject: str  # `token:<name>` or `oidc:<claim>`; `anonymous` if access is open
    roles: frozenset[Role]  # Roles of the subject; `operate` is there with `view`
    groups: tuple[str, ...] = ()  # Groups that the issuer named; () for tokens

    def has(self, role: Role) -> bool:
        """Whether the subject may do what a role permits. Each role includes `metrics`."""
        return role in self.roles or (role is Role.METRICS and bool(self.roles))


ANONYMOUS: Final = Identity(
    subject="anonymous", roles=frozenset((Role.VIEW, Role.OPERATE))
)  # Everybody, where access is open


class Unauthenticated(Exception):
    """The credentials of a request are missing or not valid. The message gives the reason without secrets."""


def with_included(roles: frozenset[Role]) -> frozenset[Role]:
    """Return the roles, with VIEW if OPERATE is one of them. METRICS is not added: every role admits to it."""
    return roles | {Role.VIEW} if Role.OPERATE in roles else roles
