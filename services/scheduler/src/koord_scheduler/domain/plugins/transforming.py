"""Plugins that change what a pod is before anybody looks at it. source    scheduler-core spec, 3 (transformers)"""

from typing import Protocol

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.plugins.interface import Named


class PodTransformer(Named, Protocol):
    """A transformer of the point preFilter, in the order of the point."""

    def transform(self, pod: Pod) -> Pod:
        """The pod as every plugin of the profile is to see it, the same object when nothing changes.

        It may read the spec, the namespace, labels, annotations and owners, so that pods that agree in these stay
        alike; to transform twice is as to transform once.
        raises    InvalidInput: the pod cannot be read, and is not placed
        """
        ...
