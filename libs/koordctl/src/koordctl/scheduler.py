"""`koord scheduler`, and the configurations of schedulers: the one in a file, and the one of the running scheduler.

The code of the scheduler is imported where it is used: the models of a configuration take longer to build than most
commands take to run.
"""

from __future__ import annotations

import json
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from koordcore.protocol.component_config import InvalidConfiguration
from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import ask, find_service
from koordctl.access.files import documents_of
from koordctl.render.output import Format, say_error, show_document, write_line

if TYPE_CHECKING:
    from koord_scheduler.domain.config.effective import EffectiveConfiguration

_ANSWER_SECONDS = 5.0

app = typer.Typer(help="Check a scheduler's configuration before it runs.", no_args_is_help=True)


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]  # makes a single command a subcommand
    """Check a scheduler's configuration before it runs."""


@app.command("check-config")
def check_config(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A KubeSchedulerConfiguration, or a ConfigMap that holds one; default: the default profile.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
) -> None:
    """Print the effective configuration as YAML: every plugin, weight and argument filled in.

    Fields that are accepted and have no effect are listed in comments at the top. If the file is not valid, each
    problem is one line with the file, the field, the rule and the value, and the exit status is 1.

    Examples:

      koord scheduler check-config

      koord scheduler check-config my.yaml
    """
    configuration = scheduler_configuration(file)
    for path, why in configuration.ignored:
        write_line(f"# ignored: {path}: {why}")
    show_document(configuration.as_json(), Format.YAML)


def scheduler_configuration(file: Path | None) -> EffectiveConfiguration:
    """Return the configuration in a file, or the default one if the file is None.

    If the file is not valid, print one line per problem (file, field, rule, value) and end the command with status 1.
    If it is not YAML or JSON, or has no documents, end it with status 2.
    """
    if file is not None:
        documents_of(file, wanted="a KubeSchedulerConfiguration")
    from koord_scheduler.configuration import load_configuration

    try:
        return load_configuration(file)
    except InvalidInput as error:
        for problem in error.problems if isinstance(error, InvalidConfiguration) else (error,):
            say_error(f"{file}: {problem.sentence()}" if file else problem.sentence())
        raise typer.Exit(1) from error


class Compared(NamedTuple):
    """The differences between two scheduler configurations."""

    name: str  # Phrase that names the first configuration
    other: str  # Phrase that names the second configuration
    differences: list[str]  # One sentence per difference; empty if both have the same effect


def compared_with_force(file: Path | None, configuration: EffectiveConfiguration) -> Compared:
    """Compare a configuration with that of the running scheduler, or with the default one if no scheduler answers.

    `file` names the configuration; None for the default one.
    """
    from koord_scheduler.configuration import known_plugins, load_configuration
    from koord_scheduler.domain.config.differences import differences

    running = _running_configuration()
    before = running or load_configuration(None)
    return Compared(
        name=str(file) if file is not None else "the default configuration",
        other="the running scheduler's" if running is not None else "the default one",
        differences=list(differences(before, configuration, known_plugins())),
    )


def _running_configuration() -> EffectiveConfiguration | None:
    """The configuration that `/configz` of the running scheduler shows, or None if there is no answer."""
    url = find_service("scheduler")
    if url is None:
        return None
    from koord_scheduler.configuration import known_plugins
    from koord_scheduler.domain.config.effective import effective_configuration

    try:
        answer = ask(f"{url}/configz", timeout=_ANSWER_SECONDS)
        shown = answer.json()["kubescheduler.config.k8s.io"] if answer.is_success else None
        return None if shown is None else effective_configuration(json.dumps(shown).encode(), known_plugins())
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
