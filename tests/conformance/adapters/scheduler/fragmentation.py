"""Adapters for the kinds of GPU fragmentation."""

from typing import Any

import numpy as np
from conformance.registry import adapter
from koordcore.fragmentation.measure import Measure, gradient_scores
from koordcore.fragmentation.nodes import GpuColumns, NodeGpus, columns_of
from koordcore.fragmentation.pods import GpuPod, TypicalPod, gpu_pod, typical_pods
from koordcore.fragmentation.policies import BASELINES, NodeTags, PolicyName, affinity_tag

Json = dict[str, Any]


_DECIMALS = 6
"""The cases round frequencies and amounts to so many decimals."""


def _pod(pod: Json) -> GpuPod:
    cpu, gpu, num = (int(pod.get(name) or 0) for name in ("milli_cpu", "gpu_milli", "num_gpu"))
    return gpu_pod(cpu, gpu, num, pod.get("gpu_spec") or "")


def _node(case: Json) -> GpuColumns:
    node = case["node"]
    lefts = tuple(node.get("gpu_milli_left") or ())
    return columns_of([NodeGpus(node.get("milli_cpu_left") or 0, lefts, node.get("gpu_model") or "")])


def _measure(case: Json, nodes: GpuColumns) -> Measure:
    listed: list[Json] = case.get("typical_pods") or []
    typical = [TypicalPod(_pod(each), each["frequency"]) for each in listed]
    return Measure(typical, nodes.models)


@adapter("scheduler.fgd_fragment", whole=("amounts",))
def fgd_fragment(case: Json) -> Json:
    """Measure the fragmentation of a node."""
    nodes = _node(case)
    measure = _measure(case, nodes)
    return {
        "amounts": {
            str(category): round(float(amount[0]), _DECIMALS) for category, amount in measure.amounts(nodes).items()
        },
        "fragment_gpu_milli": round(float(measure.fragment(nodes)[0]), _DECIMALS),
        "free_gpu_milli": int(nodes.gpu_milli_left.sum()),
    }


@adapter("scheduler.fgd_score")
def fgd_score(case: Json) -> Json:
    """Score a placement with FGD."""
    nodes, pod = _node(case), _pod(case["pod"])
    measure = _measure(case, nodes)
    scores, gpus = gradient_scores(measure, nodes, pod)
    return {
        "score": int(scores[0]),
        "gpu_indices": list(nodes.assigned(0, pod, int(gpus[0]))) if nodes.fitting(pod)[0] else [],
        "fragment_before": round(float(measure.fragment(nodes)[0]), _DECIMALS),
    }


@adapter("scheduler.fgd_typical_pods")
def fgd_typical_pods(case: Json) -> Json:
    """Return the typical pods of a workload."""
    found = typical_pods([_pod(each) for each in case["pods"]], case["popularity_threshold_percent"])
    return {"typical_pods": [{**each.pod._asdict(), "frequency": round(each.frequency, _DECIMALS)} for each in found]}


@adapter("scheduler.gpu_policy_score")
def gpu_policy_score(case: Json) -> Json:
    """Score a placement with the policies that need no typical pods."""
    nodes, pod = _node(case), _pod(case["pod"])
    counts: dict[str, int] = case.get("node_affinity_tags") or {}
    tags = {tag for tag, count in counts.items() if count}
    here = NodeTags(np.array([affinity_tag(pod) in tags]), np.array([len(tags)]))
    return {
        "scores": {
            str(name): int(policy.scored(nodes, pod, here).scores[0])
            for name, policy in BASELINES.items()
            if name is not PolicyName.RANDOM
        }
    }
