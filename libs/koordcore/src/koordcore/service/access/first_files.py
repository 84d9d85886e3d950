"""The first access file of an installation: one static token for `koord`, and a key for the sessions of browsers.

    access/access.yaml, tokens.yaml, session.key     for every service that serves HTTP
    operator/token                                   for `koord`

The services mount the folder `access`. Somebody who can read it cannot send requests: it holds hashes of tokens. With
the session key they can make cookies, so only services may read it.
"""

import secrets
from pathlib import Path
from typing import Final

from koordcore.service.access.needs import Role
from koordcore.service.access.static_tokens import StaticToken, digest_of, new_token, read_tokens, write_tokens

OPERATOR: Final = "operator"
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
    """Write the access files that are missing, and a static token for `koord`.

    An existing access file or session key is kept. If the file of tokens or the token of `koord` is missing, `koord`
    gets a new token, which replaces its old one. The tokens of others are kept.

    Args:
        directory: Folder of an installation, as `koord keys create` writes it.

    Raises:
        InvalidInput: The file of tokens exists and is not valid.
    """
    folder, token_file = directory / "access", directory / OPERATOR / "token"
    folder.mkdir(parents=True, exist_ok=True)
    token_file.parent.mkdir(parents=True, exist_ok=True)
    access_file, tokens_file, key_file = (folder / name for name in ("access.yaml", "tokens.yaml", "session.key"))
    if not access_file.exists():
        _write_secret(access_file, _FIRST)
    if not key_file.exists():
        _write_secret(key_file, secrets.token_urlsafe(32))
    if tokens_file.exists() and token_file.exists():
        return
    token = new_token()
    known = read_tokens(tokens_file) if tokens_file.exists() else {}
    others = {digest: each for digest, each in known.items() if each.name != OPERATOR}
    made = StaticToken(name=OPERATOR, roles=(Role.OPERATE,), sha256=digest_of(token))
    write_tokens(tokens_file, {**others, made.sha256: made})
    _write_secret(token_file, token)


def _write_secret(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
