"""`koord scheduler`: check a scheduler's configuration before it runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from koordctl.render.output import Format, show_document

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
    # Imported here: the models of a configuration take longer to build than most commands take to run.
    from koordctl.documents.scheduler_config import scheduler_configuration

    configuration = scheduler_configuration(file)
    for path, why in configuration.ignored:
        sys.stdout.write(f"# ignored: {path}: {why}\n")
    show_document(configuration.as_json(), Format.YAML)
