"""Shared-resource templates: fixed slices in which GPUs of some models can be shared, as a ConfigMap lists them.

Source: scheduler-fine-grained spec, 2.13.
"""

from collections.abc import Collection, Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import TypeRequest
from koordcore.protocol.manifests.documents import read_documents
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_amounts

Templates = Mapping[str, Mapping[str, int]]
"""Name of a template -> resource name -> amount of one slice."""
NO_TEMPLATE: Final = "no matched GPU shared resource template"
DATA_KEY: Final = "data.yaml"
NO_TEMPLATES: Final[Templates] = {}


class GpuTemplates:
    """The shared-resource templates of all GPU models. `matched_resources`: if a pod that shares a GPU requests one of
    these resources, its request must equal a template.
    """

    def __init__(self, matched_resources: Collection[str] = ()) -> None:
        self._matched = frozenset(matched_resources)
        self._by_model: dict[str, Templates] = {}

    def read(self, data: Mapping[str, str]) -> list[str]:
        """Replace all templates by those of a ConfigMap. Return a sentence for each entry that is ignored. `data`: Data
        of the ConfigMap; empty if it was deleted.
        """
        problems: list[str] = []
        listed: dict[str, object] = {}
        try:
            documents = read_documents(data.get(DATA_KEY, "").encode())
            listed = codec.convert(documents[0] if documents else {}, dict[str, object])
        except (codec.DecodeError, InvalidInput) as error:
            problems.append(f"{DATA_KEY} is ignored: {error}")
        self._by_model = {}
        for model, templates in listed.items():
            try:
                amounts = codec.convert(templates, dict[str, dict[str, str | int | float]])
                self._by_model[model] = {name: parse_amounts(each) for name, each in amounts.items()}
            except (codec.DecodeError, InvalidInput) as error:
                problems.append(f"the templates of {model} in {DATA_KEY} are ignored: {error}")
        return problems

    def needed_by(self, gpu: TypeRequest | None) -> bool:
        """Return whether a GPU request must equal a template: it shares a GPU and names one of `matched_resources`."""
        return gpu is not None and gpu.is_shared and not self._matched.isdisjoint(gpu.total)

    def of_node(self, labels: Mapping[str, str]) -> Templates:
        """Return template name -> amounts, for the GPU vendor and model in a node's labels; empty if there are none."""
        model = f"{labels.get(keys.GPU_VENDOR, '')}-{labels.get(keys.GPU_MODEL, '')}"
        return self._by_model.get(model, NO_TEMPLATES)

    def has_one_for(self, gpu: TypeRequest) -> bool:
        """Return whether the request equals a template of any model."""
        return any(equal_templates(templates, gpu) for templates in self._by_model.values())


def equal_templates(templates: Templates, gpu: TypeRequest) -> list[str]:
    """Return the names of the templates that equal a GPU request in each resource that the template lists."""
    return [
        name
        for name, template in templates.items()
        if template and all(gpu.total.get(resource) == amount for resource, amount in template.items())
    ]
