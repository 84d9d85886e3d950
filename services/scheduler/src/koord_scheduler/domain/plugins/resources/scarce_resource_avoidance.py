"""ScarceResourceAvoidance: keeps pods away from nodes with scarce resources that they do not request.

Source:
    scheduler-core spec, 11.5
"""

import numpy as np

from koord_scheduler.domain.columns.node_columns import PODS_COLUMN, IntArray, NodeColumns, Rows
from koord_scheduler.domain.config.args.koordinator import ScarceResourceAvoidanceArgs
from koord_scheduler.domain.framework.extension_points import SCORE
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.plugins.resources.resource_scores import MAX_SCORE
from koord_scheduler.domain.pods.equivalence_classes import PodClass


class ScarceResourceAvoidance:
    """The plugin ScarceResourceAvoidance: prefers nodes without scarce resources that the pod does not request.

    The score is (|D| - |S|) * 100 // |D|. D are the resources of the node that the pod does not request; S are the
    scarce resources in D. The score is 100 if D or S is empty. The number of pods does not count as a resource.
    """

    name = "ScarceResourceAvoidance"
    extension_points = (SCORE,)
    reads = Reads.LOAD
    normalizes = False

    def __init__(self, args: ScarceResourceAvoidanceArgs | None = None) -> None:
        self.args = args or ScarceResourceAvoidanceArgs()

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return lower scores for nodes with more scarce resources that the pod does not request."""
        scarce = [nodes.column(name) for name in dict.fromkeys(self.args.resources)]
        unwanted = nodes.allocatable[:, rows] > 0
        unwanted[pod.demand.columns] = False
        unwanted[PODS_COLUMN] = False
        different = unwanted.sum(axis=0)
        avoided = different - unwanted[scarce].sum(axis=0)
        return np.where(avoided == different, MAX_SCORE, avoided * MAX_SCORE // np.maximum(different, 1))

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Return the raw scores unchanged: they are within 0..100 already."""
        return raw
