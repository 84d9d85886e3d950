"""The configuration of the descheduler in a file, or the default one of the commands."""

from pathlib import Path
from typing import Final

import typer
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.loading import ConfigurationRefused, load
from koord_descheduler.domain.plugins.registry import BUILT_IN

from koordctl.documents.document_files import text_of
from koordctl.render.output import say_error

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


def descheduler_configuration(file: Path | None) -> DeschedulerConfiguration:
    """Return the effective configuration in a file, or the default one if the file is None.

    If the file is not valid, print one line per problem (file, field, rule, value) and end the command with status 1.
    If it cannot be read, is not YAML or JSON, or has no documents, end it with status 2.
    """
    text = _DEFAULT if file is None else text_of(file, wanted="a DeschedulerConfiguration")
    try:
        return load(text, BUILT_IN)
    except ConfigurationRefused as error:
        for problem in error.problems:
            say_error(f"{file}: {problem.sentence()}")
        raise typer.Exit(1) from error
