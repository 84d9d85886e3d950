"""The sender of a request, its roles, and the reasons for which a request is refused."""

from dataclasses import dataclass
from typing import Final

from koordcore.service.access.needs import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The sender of a request.

    Attributes:
        subject: `token:<name>` or `oidc:<claim>`; `anonymous` if access is open.
        roles: Roles of the subject; `operate` is there with `view`.
        groups: Groups that the issuer named; () for tokens.
    """

    subject: str
    roles: frozenset[Role]
    groups: tuple[str, ...] = ()


ANONYMOUS: Final = Identity(subject="anonymous", roles=frozenset(Role))
"""Everybody, where access is open."""


class Unauthenticated(Exception):
    """The credentials of a request are missing or not valid. The message gives the reason without secrets."""


def with_included(roles: frozenset[Role]) -> frozenset[Role]:
    """Return the roles and the roles that they include: OPERATE includes VIEW."""
    return roles | {Role.VIEW} if Role.OPERATE in roles else roles
