"""Static tokens for small installations: a file with the name, the roles and the hash of each token.

    tokens:
      - {name: grafana, roles: [view], sha256: 9f86d081...}
      - {name: alice, roles: [operate], sha256: ..., expires: 2027-01-01T00:00:00Z}

A token has 256 random bits, so its plain SHA-256 cannot be guessed; a slow hash is for passwords, which people choose.
`koord tokens` writes the file.
"""

import datetime
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from koordcore.service.access.identity import Identity, Unauthenticated, with_included
from koordcore.service.access.needs import Role
from koordcore.values.invalid import InvalidInput

PREFIX: Final = "koord_"
"""Beginning of every token, by which scanners for secrets find it."""


class StaticToken(BaseModel):
    """One token of the file.

    Attributes:
        name: Name of its owner; the subject is `token:<name>`.
        roles: Roles of the token.
        sha256: SHA-256 of the token, 64 hex digits.
        expires: Time from which the token is refused; None: never.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.@]{0,62}$")
    roles: tuple[Role, ...] = Field(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    expires: datetime.datetime | None = None

    @property
    def identity(self) -> Identity:
        """The identity that the token proves."""
        return Identity(subject=f"token:{self.name}", roles=with_included(frozenset(self.roles)))

    def is_expired(self, now: datetime.datetime) -> bool:
        """Return whether the token is refused at this time."""
        if self.expires is None:
            return False
        zoned = self.expires if self.expires.tzinfo else self.expires.replace(tzinfo=datetime.UTC)
        return zoned <= now


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tokens: tuple[StaticToken, ...] = ()


def new_token() -> str:
    """Return a new random token."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return the hash of a token in the form in which the token file stores it."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(file: Path) -> dict[str, StaticToken]:
    """Return SHA-256 -> token of a file of tokens.

    Raises:
        InvalidInput: The file cannot be read, is not valid, or has two tokens with one name.
    """
    try:
        found = _File.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput("a readable YAML file", str(error), str(file)) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput("a file of tokens", f"{where}: {first['msg']}", str(file)) from None
    names = [token.name for token in found.tokens]
    if len(set(names)) != len(names):
        raise InvalidInput("a file in which each token has another name", sorted(names), str(file))
    return {token.sha256: token for token in found.tokens}


def write_tokens(file: Path, tokens: Mapping[str, StaticToken]) -> None:
    """Replace a file of tokens; nobody but its owner can read it."""
    entries = [token.model_dump(mode="json", exclude_none=True) for token in tokens.values()]
    part = file.with_name(f".{file.name}.new")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_text(yaml.safe_dump({"tokens": entries}, sort_keys=False), encoding="utf-8")
    part.replace(file)


def identity_of(token: str, tokens: Mapping[str, StaticToken], now: datetime.datetime) -> Identity:
    """Return the identity that a static token proves.

    The time of the look-up may depend on the hash. It tells nothing about the token, which cannot be derived from it.

    Raises:
        Unauthenticated: The token is unknown or has expired.
    """
    found = tokens.get(digest_of(token))
    if found is None:
        raise Unauthenticated("the token is unknown")
    if found.is_expired(now):
        raise Unauthenticated(f"the token {found.name} has expired")
    return found.identity
