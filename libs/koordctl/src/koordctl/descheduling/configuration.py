"""`koord descheduler`: check a configuration, or convert a policy of the Kubernetes descheduler into one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, cast

import typer
from koordcore.protocol.component_config import InvalidConfiguration, refuse
from koordcore.protocol.manifests import read_documents
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.access.files import text_of
from koordctl.render.output import Format, say_error, show_document, write_line

if TYPE_CHECKING:
    from koord_descheduler.domain.config.document import DeschedulerConfiguration

_DEFAULT: Final = b"""
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 10s
profiles:
- name: koord-descheduler
  prove: true
  plugins:
    balance: {enabled: [{name: LowNodeLoad}]}
  pluginConfig:
  - name: MigrationController
    args: {namespaces: {exclude: [kube-system, koordinator-system]}}
  - name: LowNodeLoad
    args:
      evictableNamespaces: {exclude: [kube-system, koordinator-system]}
      lowThresholds: {cpu: 45, memory: 55}
      highThresholds: {cpu: 75, memory: 80}
"""

app = typer.Typer(help="Check a descheduler's configuration, or convert a policy into one.", no_args_is_help=True)


@app.command("check-config")
def check_config(
    file: Annotated[
        Path,
        typer.Argument(
            help="A DeschedulerConfiguration (YAML or JSON), or a ConfigMap that contains one.", show_default=False
        ),
    ],
) -> None:
    """Check a configuration, and print it with all defaults. Every problem is named with field, rule and value.

    An unknown field in the arguments of a plugin is an error, also where the service ignores it.

    Settings that are accepted and have no effect are listed in comments at the top.

    Examples:

      koord descheduler check-config examples/descheduler/configurations/low-node-load.yaml
    """
    from koord_descheduler.domain.config.document import KIND
    from koord_descheduler.domain.config.loading import decode, load, text_in
    from koord_descheduler.domain.config.validation import endless_evictions, settings_without_effect, unknown_arguments
    from koord_descheduler.domain.plugins.registry import BUILT_IN

    whole, place = text_of(file, wanted="a DeschedulerConfiguration"), ""
    try:
        text, place = text_in(whole, KIND)
        written = decode(text)
        refuse(unknown_arguments(written, BUILT_IN))
        configuration = load(text, BUILT_IN)
    except InvalidInput as error:
        _refused(file, error, place)
    for path, why in settings_without_effect(written, configuration):
        write_line(f"# ignored: {path}: {why}")
    for path, why in endless_evictions(configuration):
        write_line(f"# warning: {path}: {why}")
    show_document(configuration.as_json(), Format.YAML)


@app.command()
def convert(
    file: Annotated[
        Path,
        typer.Argument(
            help="A DeschedulerPolicy, v1alpha1 or v1alpha2, or a ConfigMap that contains one.", show_default=False
        ),
    ],
) -> None:
    """Print the DeschedulerConfiguration with the effect of a DeschedulerPolicy of the Kubernetes descheduler.

    Fields of the policy that have no counterpart are listed in comments at the top. As for the Kubernetes descheduler,
    an unknown field is an error, at any depth.

    Examples:

      koord descheduler convert examples/descheduler/policies/low-node-utilization.yaml
    """
    from koord_descheduler.domain.config.loading import decode, load, text_in
    from koord_descheduler.domain.config.policies import POLICY, converted, left_out
    from koord_descheduler.domain.config.validation import unknown_arguments
    from koord_descheduler.domain.plugins.registry import BUILT_IN

    whole, place = text_of(file, wanted="a DeschedulerPolicy"), ""
    try:
        text, place = text_in(whole, POLICY)
        documents = read_documents(text)
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise InvalidInput("one DeschedulerPolicy", f"{len(documents)} documents", "document")
        policy = cast("dict[str, Any]", documents[0])
        result = converted(policy)
        made = codec.encode(result)
        refuse(unknown_arguments(decode(made), BUILT_IN))
        load(made, BUILT_IN)
    except InvalidInput as error:
        _refused(file, error, place)
    for field in left_out(policy):
        write_line(f"# ignored: {field}: a DeschedulerConfiguration has no such field")
    show_document(result, Format.YAML)


def _refused(file: Path, error: InvalidInput, place: str = "") -> NoReturn:
    """Print each problem, and end with status 1. `place`: path of the document in its file; "" for the file itself."""
    error = error.at(place) if place else error
    for problem in error.problems if isinstance(error, InvalidConfiguration) else (error,):
        say_error(f"{file}: {problem.sentence()}")
    raise typer.Exit(1) from error


def descheduler_configuration(file: Path | None) -> DeschedulerConfiguration:
    """Return the effective configuration in a file, or the default one of the commands if the file is None.

    If the file is not valid, print one line per problem (file, field, rule, value) and end the command with status 1.
    If it cannot be read, is not YAML or JSON, or has no documents, end it with status 2.
    """
    from koord_descheduler.domain.config.loading import ConfigurationRefused, load
    from koord_descheduler.domain.plugins.registry import BUILT_IN

    text = _DEFAULT if file is None else text_of(file, wanted="a DeschedulerConfiguration")
    try:
        return load(text, BUILT_IN)
    except ConfigurationRefused as error:
        for problem in error.problems:
            say_error(f"{file}: {problem.sentence()}")
        raise typer.Exit(1) from error
