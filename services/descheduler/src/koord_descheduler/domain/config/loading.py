"""Read a configuration: decode it, fill in defaults, check it. A refusal has the stage and all problems.

Source:
    descheduler spec, 3
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import cast

from koordcore.protocol.component_config import InvalidConfiguration, read
from koordcore.protocol.manifests.documents import read_documents
from koordcore.protocol.objects import without_nulls
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.document import KIND, DeschedulerConfiguration
from koord_descheduler.domain.config.effective import with_defaults
from koord_descheduler.domain.config.validation import framework_problems, value_problems
from koord_descheduler.domain.framework.registry import Registry


class Stage(StrEnum):
    """Stage of checking that refuses a configuration: its form, its values, or the building of its profiles."""

    DECODE = "decode"
    VALIDATION = "validation"
    FRAMEWORK = "framework"


class ConfigurationRefused(InvalidConfiguration):
    """It has all problems of the first stage that found any."""

    def __init__(self, stage: Stage, problems: Sequence[InvalidInput]) -> None:
        super().__init__([problem if problem.path else problem.at("document") for problem in problems])
        self.stage = stage

    def __reduce__(self) -> tuple[type["ConfigurationRefused"], tuple[Stage, Sequence[InvalidInput]]]:  # pyright: ignore[reportIncompatibleMethodOverride]  another constructor
        return type(self), (self.stage, self.problems)


def load(text: bytes, registry: Registry) -> DeschedulerConfiguration:
    """Return the effective configuration in a YAML or JSON text.

    Raises:
        ConfigurationRefused: The text is not a valid configuration.
    """
    try:
        configuration = with_defaults(decode(text), registry)
    except InvalidConfiguration as error:
        raise ConfigurationRefused(Stage.DECODE, error.problems) from error
    except InvalidInput as error:
        raise ConfigurationRefused(Stage.DECODE, [error]) from error
    _refuse(Stage.VALIDATION, value_problems(configuration, registry))
    _refuse(Stage.FRAMEWORK, framework_problems(configuration, registry))
    return configuration


def text_in(text: bytes, kind: str) -> tuple[bytes, str]:
    """Return the text of a document of a kind, and its path: that in a ConfigMap, or the text itself with the path "".

    A ConfigMap must have one value that is such a document, under any key.

    Raises:
        InvalidInput: The text is a ConfigMap with no such value, or with several.
    """
    documents = read_documents(text)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        return text, ""
    config_map = cast("dict[str, object]", documents[0])
    if (config_map.get("apiVersion"), config_map.get("kind")) != ("v1", "ConfigMap"):
        return text, ""
    data = config_map.get("data")
    values = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    found = [key for key, value in values.items() if isinstance(value, str) and _is_of(value.encode(), kind)]
    if len(found) != 1:
        raise InvalidInput(f"one {kind} in a ConfigMap", found or sorted(values), "data")
    return str(values[found[0]]).encode(), f"data[{found[0]}]"


def _is_of(text: bytes, kind: str) -> bool:
    try:
        documents = read_documents(text)
    except InvalidInput:
        return False
    first = documents[0] if len(documents) == 1 else None
    return isinstance(first, dict) and cast("dict[str, object]", first).get("kind") == kind


def decode(text: bytes) -> DeschedulerConfiguration:
    """Without the defaults that depend on other fields.

    Raises:
        InvalidInput: The text is not one document, a key occurs twice, or a field is unknown or has a wrong type.
    """
    documents = read_documents(text)
    if len(documents) != 1:
        raise InvalidInput(f"one {KIND}", f"{len(documents)} documents", "document")
    return read(DeschedulerConfiguration, without_nulls(documents[0]), "")


def _refuse(stage: Stage, problems: Iterable[InvalidInput]) -> None:
    found = list(problems)
    if found:
        raise ConfigurationRefused(stage, found)
