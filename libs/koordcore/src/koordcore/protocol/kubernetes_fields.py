"""Names of all documented fields of the accepted Kubernetes kinds and their parts.

The objects of `koordcore.protocol.objects` have the fields that somebody here reads; these are the
others. `kubernetes_fields.json` is made from the models of the Kubernetes client by
`python -m koord_manager.shell.export_fields`, and held equal to them by a test.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from koordcore.values import codec

FieldTypes = Mapping[str, str]
"""JSON name of a field -> the type of its value, or of the items of its list; "" for text, numbers, maps, any JSON."""


@cache
def field_types() -> Mapping[str, FieldTypes]:
    """Type (`PodSpec`) -> its fields. Read once (about 1 ms) and kept."""
    text = (files("koordcore.protocol") / "kubernetes_fields.json").read_bytes()
    return codec.decode(text, dict[str, dict[str, str]])
