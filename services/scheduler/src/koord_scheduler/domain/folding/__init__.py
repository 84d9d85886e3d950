"""Fold the log into a scheduler's state: record facts, and reconcile the pods that they concern.

log          the one door: the next event, one that is read ahead, a node's report
pods         what the API says of pods            placements   what the log says of their nodes
nodes        nodes, and what the manager decides  objects      everything else that placement reads
statements   what schedulers have said beside placements: evictions, gangs, quotas, explanations

Source:
    event-bus spec, 3.2
"""
