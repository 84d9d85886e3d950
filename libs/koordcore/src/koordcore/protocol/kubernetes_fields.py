"""Names of all documented fields of the accepted Kubernetes kinds and their parts.

`koordcore.protocol.objects` defines only the fields that Koordstream reads. The names here also include all other
fields. `kubernetes_fields.json` is made from the models of the Kubernetes client by
`python -m koord_manager.shell.export_fields`, and held equal to them by a test.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from koordcore.values import codec

# JSON name of a field -> type of its value or list items; "" for text, numbers, maps and any JSON.
FieldTypes = Mapping[str, str]


@cache
def field_types() -> Mapping[str, FieldTypes]:
    """Return name of a Kubernetes type (`PodSpec`) -> its documented fields. The file is read once (about 1 ms)."""
    text = (files("koordcore.protocol") / "kubernetes_fields.json").read_bytes()
    return codec.decode(text, dict[str, dict[str, str]])
