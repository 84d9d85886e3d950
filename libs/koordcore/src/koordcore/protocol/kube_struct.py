"""Base class of the structs for Kubernetes objects, and the type of resource lists as written."""

import msgspec

Quantities = dict[str, str | int | float]
"""Resource list as written: name -> quantity text or JSON number (protocol spec, 1.1)."""


class KubeStruct(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base class of all structs for Kubernetes objects.

    In JSON, names are camelCase and fields with defaults are omitted.
    """
