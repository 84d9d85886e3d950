"""`koord descheduler`: check a configuration, and convert a policy of the Kubernetes descheduler into one."""

from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer
import yaml
from koordcore.protocol.component_config import InvalidConfiguration
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.documents.document_files import documents_of, text_of
from koordctl.render.output import say_error

app = typer.Typer(help="Check a descheduler's configuration, or convert a policy into one.", no_args_is_help=True)


@app.command("check-config")
def check_config(
    file: Annotated[Path, typer.Argument(help="A DeschedulerConfiguration (YAML or JSON).", show_default=False)],
) -> None:
    """Check a configuration, and print it with all defaults. Every problem is named with field, rule and value.

    Settings that are accepted and have no effect are listed in comments at the top.

    Examples:

      koord descheduler check-config examples/descheduler/configurations/low-node-load.yaml
    """
    from koord_descheduler.domain.config.loading import decode, load
    from koord_descheduler.domain.config.validation import settings_without_effect
    from koord_descheduler.domain.plugins.registry import BUILT_IN

    text = text_of(file, wanted="a DeschedulerConfiguration")
    try:
        configuration = load(text, BUILT_IN)
    except InvalidConfiguration as error:
        _refused(file, error)
    for path, why in settings_without_effect(decode(text), configuration):
        print(f"# ignored: {path}: {why}")
    print(yaml.safe_dump(configuration.as_json(), sort_keys=False), end="")


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="A DeschedulerPolicy, v1alpha1 or v1alpha2.", show_default=False)],
) -> None:
    """Print the DeschedulerConfiguration with the effect of a DeschedulerPolicy of the Kubernetes descheduler.

    Fields of the policy that have no counterpart are listed in comments at the top.

    Examples:

      koord descheduler convert examples/descheduler/policies/low-node-utilization.yaml
    """
    from koord_descheduler.domain.config.loading import load
    from koord_descheduler.domain.config.policies import converted, left_out
    from koord_descheduler.domain.plugins.registry import BUILT_IN

    documents = documents_of(file, wanted="a DeschedulerPolicy")
    try:
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise InvalidInput("one DeschedulerPolicy", f"{len(documents)} documents", "document")
        policy = cast("dict[str, Any]", documents[0])
        result = converted(policy)
        load(codec.encode(result), BUILT_IN)
    except InvalidInput as error:
        _refused(file, error)
    for field in left_out(policy):
        print(f"# ignored: {field}: a DeschedulerConfiguration has no such field")
    print(yaml.safe_dump(result, sort_keys=False), end="")


def _refused(file: Path, error: InvalidInput) -> NoReturn:
    for problem in error.problems if isinstance(error, InvalidConfiguration) else (error,):
        say_error(f"{file}: {problem.sentence()}")
    raise typer.Exit(1) from error
