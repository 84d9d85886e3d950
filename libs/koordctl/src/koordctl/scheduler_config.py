"""A scheduler's configuration that a user names: read, or every problem in it told."""

from pathlib import Path

import typer
from koord_scheduler.domain.config.effective import EffectiveConfiguration
from koord_scheduler.domain.config.problems import InvalidConfiguration
from koord_scheduler.shell.configuration import load_configuration
from koordcore.values.invalid import InvalidInput

from koordctl.output import say_error


def scheduler_configuration(file: Path | None) -> EffectiveConfiguration:
    """What a file means; None: the shipped one. Ends the command with a line for each problem: file, field, rule,
    value.
    """
    try:
        return load_configuration(file)
    except InvalidInput as error:
        for problem in error.problems if isinstance(error, InvalidConfiguration) else (error,):
            say_error(f"{file}: {problem.sentence()}" if file else problem.sentence())
        raise typer.Exit(1) from error
