"""Static tokens for small installations: a file with the name, the roles and the hash of each token.

    tokens:
      - {name: grafana, roles: [view], sha256: 9f86d081...}
      - {name: alice, roles: [operate], sha256: ..., expires: 2027-01-01T00:00:00Z}

A token has 256 random bits, so its plain SHA-256 cannot be guessed; a slow hash is for passwords, which people choose.
`koord tokens` writes the file. The first files of an installation:

    access/access.yaml, tokens.yaml, session.key     for every service that serves HTTP
    operator/token                                   for `koord`: the role `operate`
    prometheus/token                                 for Prometheus: the role `metrics`
    agent/access.yaml, tokens.yaml                   for agents of simulated nodes: the token of Prometheus only

The services mount the folder `access`. Somebody who can read it cannot send requests: it holds hashes of tokens. With
the session key they can make cookies, so only services may read it.
"""

import datetime
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from koordcore.service.access.needs import Identity, Role, Unauthenticated, with_included
from koordcore.values.invalid import InvalidInput
from koordcore.values.yaml_text import YamlError, dump_yaml, load_yaml

PREFIX: Final = "koord_"  # Beginning of every token, by which scanners for secrets find it


class StaticToken(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.@]{0,62}$")  # Name of its owner; the subject is `token:<name>`
    roles: tuple[Role, ...] = Field(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")  # SHA-256 of the token, 64 hex digits
    expires: datetime.datetime | None = None  # Time from which the token is refused; None: never

    @property
    def identity(self) -> Identity:
        return Identity(subject=f"token:{self.name}", roles=with_included(frozenset(self.roles)))

    def is_expired(self, now: datetime.datetime) -> bool:
        """A time without a zone counts as UTC."""
        if self.expires is None:
            return False
        zoned = self.expires if self.expires.tzinfo else self.expires.replace(tzinfo=datetime.UTC)
        return zoned <= now


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tokens: tuple[StaticToken, ...] = ()


def new_token() -> str:
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
        found = _File.model_validate(load_yaml(file.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError, YamlError, InvalidInput) as error:
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
    part.write_text(dump_yaml({"tokens": entries}), encoding="utf-8")
    part.replace(file)


def identity_of(token: str, tokens: Mapping[str, StaticToken], now: datetime.datetime) -> Identity:
    """Return the identity that a static token proves. The time of the look-up may depend on the hash. It tells nothing
    about the token, which cannot be derived from it.

    Raises:
        Unauthenticated: The token is unknown or has expired.
    """
    found = tokens.get(digest_of(token))
    if found is None:
        raise Unauthenticated("the token is unknown")
    if found.is_expired(now):
        raise Unauthenticated(f"the token {found.name} has expired")
    return found.identity


OPERATOR: Final = "operator"
PROMETHEUS: Final = "prometheus"
# Owners of the first tokens, with the modes of their files. Prometheus has a user of its own, whose group reads it.
_OWN_TOKENS: Final = ((OPERATOR, Role.OPERATE, 0o600), (PROMETHEUS, Role.METRICS, 0o640))
_OF_AGENTS: Final = "# Whoever sends the token of Prometheus sees names in metrics.\ntokens_file: tokens.yaml\n"
_FIRST: Final = """# Who may send requests (docs/security.md). The services read a change within a second.
tokens_file: tokens.yaml
session_key_file: session.key
roles:
  view: {groups: [], subjects: []}
  operate: {groups: [], subjects: []}
# oidc: {issuer: https://sso.example.org, client_id: koordstream}
# external_url: https://koordstream.example.org
limits: {requests_per_second: 50, burst: 200}
"""


def ensure_access_files(directory: Path) -> None:
    """Write the access files that are missing, and a static token for `koord`, and one for Prometheus if it has a
    folder. An existing access file or session key is kept. If the file of tokens, or the token of one of them, is
    missing, it gets a new token, which replaces its old one. The tokens of others are kept. Agents of simulated nodes
    know the token of Prometheus only. `directory`: folder of an installation, as `koord keys create` writes it.

    Raises:
        InvalidInput: The file of tokens exists and is not valid.
    """
    folder, agents = directory / "access", directory / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    access_file, tokens_file, key_file = (folder / name for name in ("access.yaml", "tokens.yaml", "session.key"))
    if not access_file.exists():
        _write_secret(access_file, _FIRST)
    if not key_file.exists():
        _write_secret(key_file, secrets.token_urlsafe(32))
    for name, role, mode in _OWN_TOKENS:
        token_file = directory / name / "token"
        if (tokens_file.exists() and token_file.exists()) or (name == PROMETHEUS and not token_file.parent.is_dir()):
            continue
        known = read_tokens(tokens_file) if tokens_file.exists() else {}
        token = new_token()
        others = {digest: each for digest, each in known.items() if each.name != name}
        made = StaticToken(name=name, roles=(role,), sha256=digest_of(token))
        write_tokens(tokens_file, {**others, made.sha256: made})
        token_file.parent.mkdir(parents=True, exist_ok=True)
        _write_secret(token_file, token, mode)
    of_metrics = {hash_: each for hash_, each in read_tokens(tokens_file).items() if each.name == PROMETHEUS}
    if agents.is_dir() and of_metrics:
        write_tokens(agents / "tokens.yaml", of_metrics)
        _write_secret(agents / "access.yaml", _OF_AGENTS)


def _write_secret(file: Path, text: str, mode: int = 0o600) -> None:
    file.unlink(missing_ok=True)
    file.touch(mode=mode)
    file.write_text(text, encoding="utf-8")
