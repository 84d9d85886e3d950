"""The access file of a service: roles, static tokens, the OIDC issuer, sessions and limits. Read again when it changes.

    roles:
      view: {groups: [engineers]}
      operate: {groups: [oncall], subjects: ["oidc:alice"]}
    tokens_file: tokens.yaml
    oidc: {issuer: https://sso.example.org, client_id: koordstream}
    external_url: https://koordstream.example.org
    session_key_file: session.key
    limits: {requests_per_second: 50, burst: 200}

Paths are relative to the folder of the file. All services of an installation can share one file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from koordcore.service.access.needs import Role
from koordcore.service.access.static_tokens import StaticToken, read_tokens
from koordcore.service.telemetry.logging import logger
from koordcore.values.invalid import InvalidInput
from koordcore.values.yaml_text import YamlError, load_yaml

_log: Final = logger("service.access")

LOOK_SECONDS: Final = 1.0  # Least time between two looks at the files
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
LEAST_KEY_BYTES: Final = 32


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Members(_Part):
    """The members of a role: the subjects and groups that have it."""

    groups: tuple[str, ...] = ()  # Groups of the issuer's claim
    subjects: tuple[str, ...] = ()  # Subjects, for example `oidc:alice`


class Oidc(_Part):
    """The OIDC issuer whose tokens are accepted."""

    issuer: str  # URL of the issuer; https, except on loopback
    client_id: str = Field(min_length=1)  # Client of the browser's login and of `koord login`
    # File with the secret of the client; None: a public client, which PKCE protects.
    client_secret_file: Path | None = None
    audience: tuple[str, ...] = ()  # Accepted audiences of tokens; () for the client's id
    scopes: tuple[str, ...] = ("openid", "profile", "email")  # Scopes that a login asks for
    groups_claim: str = "groups"  # Claim with the groups of the subject
    # Claim that names the subject. `email` counts only if `email_verified` is true.
    subject_claim: Literal["sub", "email", "preferred_username"] = "sub"
    ca_file: Path | None = None  # Authorities of the issuer's certificate; None: those of the system
    leeway_seconds: int = Field(default=60, ge=0, le=300)  # Tolerated difference between the clocks

    @field_validator("issuer")
    @classmethod
    def _is_protected(cls, issuer: str) -> str:
        parts = urlsplit(issuer)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
            raise ValueError("an https URL is needed (http only on loopback)")
        return issuer

    @property
    def audiences(self) -> tuple[str, ...]:
        return self.audience or (self.client_id,)


class Limits(_Part):
    """Limits on the rate of requests of each subject, as a token bucket."""

    # Tokens that a bucket gains per second. `Need.cost` says how many a request takes.
    requests_per_second: float = Field(default=50.0, gt=0)
    burst: float = Field(default=200.0, ge=1)  # Size of a bucket in tokens


class AccessSettings(_Part):
    """The content of an access file. Paths are relative to its folder."""

    roles: dict[Role, Members] = {}  # Role -> its members. A static token has its roles in the file of tokens.
    tokens_file: Path | None = None  # File with the static tokens; None: there are none
    oidc: Oidc | None = None  # The OIDC issuer; None: only static tokens count
    # URL under which browsers reach the service; needed with `oidc`.
    external_url: str = Field(default="", pattern=r"^(https?://[^/]+)?$")
    # File with the key that signs the cookies of sessions; None: each process makes its own key.
    session_key_file: Path | None = None
    session_hours: float = Field(default=8.0, gt=0, le=24)  # Hours after which a session ends
    limits: Limits = Limits()  # Limits on the rate of requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An access file with the files that it names, as they were read together."""

    settings: AccessSettings  # Content of the access file
    tokens: Mapping[str, StaticToken]  # SHA-256 -> static token
    session_key: bytes | None = None  # Key that signs the cookies of sessions; None: the process makes one
    client_secret: str = ""  # Secret of the OIDC client; "" for a public client


def read_access(file: Path) -> tuple[Access, tuple[Path, ...]]:
    """Return what an access file says, and all files that were read for it.

    Raises:
        InvalidInput: A file cannot be read or is not valid. The error repeats no secret.
    """
    try:
        document: Any = load_yaml(file.read_text(encoding="utf-8")) or {}
        settings = AccessSettings.model_validate(document)
    except (OSError, UnicodeDecodeError, YamlError, InvalidInput) as error:
        raise InvalidInput("a readable YAML file", str(error), str(file)) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput("an access file", f"{where}: {first['msg']}", str(file)) from None
    if settings.oidc is not None and not settings.external_url:
        raise InvalidInput("the URL under which browsers reach the service, because oidc is set", "", "external_url")
    files = [file]

    def read(path: Path | None) -> bytes | None:
        if path is None:
            return None
        files.append(file.parent / path)
        try:
            return files[-1].read_bytes().strip()
        except OSError as error:
            raise InvalidInput("a readable file", str(error), str(files[-1])) from error

    key = read(settings.session_key_file)
    if key is not None and len(key) < LEAST_KEY_BYTES:
        raise InvalidInput(f"a key of at least {LEAST_KEY_BYTES} bytes", f"{len(key)} bytes", "session_key_file")
    secret = read(settings.oidc.client_secret_file if settings.oidc else None) or b""
    tokens: Mapping[str, StaticToken] = {}
    if settings.tokens_file is not None:
        files.append(file.parent / settings.tokens_file)
        tokens = read_tokens(files[-1])
    found = Access(settings=settings, tokens=tokens, session_key=key, client_secret=secret.decode())
    return found, tuple(files)


class LiveAccess:
    """The present content of the access file. If a changed file is not valid, the last valid content stays in force.

    Raises:
        InvalidInput: The file is not valid at the start.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._access, self._files = read_access(file)
        self._stamp: tuple[tuple[int, int, int] | None, ...] = ()
        self._looked_at = 0.0

    def at(self, now: float) -> Access:
        """Return the content of the file. `now`: monotonic time in seconds. The files are looked at no more than once a
        second.
        """
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._reload()
        return self._access

    def _reload(self) -> None:
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        before = self._files
        try:
            self._access, self._files = read_access(self._file)
        except InvalidInput as error:
            _log.error("access_file_not_reloaded", error=error.sentence())
            return
        if self._files != before:
            self._stamp = ()  # of other files: the next look reads them once more
        _log.info("access_file_reloaded", file=str(self._file), tokens=len(self._access.tokens))

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp_of(file) for file in self._files)


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        info = file.stat()  # follows links: Kubernetes changes a mounted Secret by changing a link
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size


def roles_of(settings: AccessSettings, subject: str, groups: tuple[str, ...]) -> frozenset[Role]:
    """Return the roles that the access file gives to a subject with these groups."""
    return frozenset(
        role
        for role, members in settings.roles.items()
        if subject in members.subjects or not set(members.groups).isdisjoint(groups)
    )
