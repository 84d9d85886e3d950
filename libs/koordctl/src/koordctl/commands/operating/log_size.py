"""The option `--log-size` of the commands that set up an installation."""

from __future__ import annotations

from typing import Annotated

import typer
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_quantity

_LEAST = 64 * 1024**2


def byte_size(text: str) -> int:
    """Return the bytes that a Kubernetes quantity such as `20Gi` means.

    Raises:
        typer.BadParameter: The text is not a quantity, or means less than 64 MiB.
    """
    try:
        found = parse_quantity(text).value()
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from error
    if found < _LEAST:
        raise typer.BadParameter(f"at least 64Mi, got {text}")
    return found


LogSize = Annotated[
    int | None,
    typer.Option(parser=byte_size, metavar="SIZE", help="Largest size of the log, such as 20Gi; default: 2Gi."),
]
