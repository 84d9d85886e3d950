"""`koord tokens`: static tokens of people and programs, for installations without an OIDC issuer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from koordctl.render.output import errors, fail, show_table

if TYPE_CHECKING:
    from koordcore.service.access.static_tokens import StaticToken

app = typer.Typer(no_args_is_help=True, help="Static tokens for the services' HTTP APIs: create, list, revoke.")

TokenFile = Annotated[Path, typer.Argument(help="File of tokens, which the access file names.", dir_okay=False)]
Name = Annotated[str, typer.Argument(help="Name of the token's owner.")]


@app.command()
def create(
    file: TokenFile,
    name: Name,
    role: Annotated[list[str] | None, typer.Option(help="view or operate; operate includes view.")] = None,
    days: Annotated[float, typer.Option(min=0, help="Days until the token expires; 0: it never does.")] = 90,
) -> None:
    """Create a token, print it once, and store its hash. If the name exists, its token is replaced.

    Services read the file again within a second.

    Examples:

      koord tokens create keys/access/tokens.yaml grafana --role view --days 365
    """
    from koordcore.service.access.needs import Role
    from koordcore.service.access.static_tokens import StaticToken, digest_of, new_token, write_tokens
    from pydantic import ValidationError

    known = {digest: token for digest, token in _known(file).items() if token.name != name}
    secret = new_token()
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    try:
        roles = tuple(Role(each) for each in role or ["view"])
        made = StaticToken(name=name, roles=roles, sha256=digest_of(secret), expires=expires)
    except ValidationError:
        fail(f"NAME: must be letters, digits and -_.@, at most 63, got {name!r}", status=2)
    except ValueError:
        fail(f"--role: must be view or operate, got {', '.join(role or [])}", status=2)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_tokens(file, {**known, made.sha256: made})
    errors.print(f"token of {name} with {', '.join(roles)}, {_until(made)}; it is shown only now:")
    typer.echo(secret)


@app.command("list")
def show(file: TokenFile) -> None:
    """List names, roles and expiry of the tokens.

    Examples:

      koord tokens list keys/access/tokens.yaml
    """
    rows = [(token.name, ",".join(token.roles), _until(token)) for token in _known(file).values()]
    show_table(("NAME", "ROLES", "EXPIRES"), sorted(rows), empty="there are no tokens")


@app.command()
def revoke(file: TokenFile, name: Name) -> None:
    """Remove a token. Services refuse it, and sessions that it began, within a second.

    Examples:

      koord tokens revoke keys/access/tokens.yaml grafana
    """
    from koordcore.service.access.static_tokens import write_tokens

    known = _known(file)
    kept = {digest: token for digest, token in known.items() if token.name != name}
    if len(kept) == len(known):
        names = ", ".join(sorted(token.name for token in known.values()))
        fail(f"{name} has no token in {file}; it has: {names or 'none'}")
    write_tokens(file, kept)
    typer.echo(f"the token of {name} is revoked")


def _known(file: Path) -> dict[str, StaticToken]:
    from koordcore.service.access.static_tokens import read_tokens
    from koordcore.values.invalid import InvalidInput

    if not file.exists():
        return {}
    try:
        return read_tokens(file)
    except InvalidInput as error:
        fail(error.sentence(), status=2)


def _until(token: StaticToken) -> str:
    return "never" if token.expires is None else f"{token.expires:%Y-%m-%dT%H:%MZ}"
