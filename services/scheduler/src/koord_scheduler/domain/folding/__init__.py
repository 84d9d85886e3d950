"""Folds the log into a scheduler's state: records facts, and reconciles the pods that they concern.

log          folds the next event, an event that is read ahead, or a node's report
pods         facts of the API about pods               placements   facts of the log about their nodes
nodes        nodes, and the manager's decisions        objects      other objects that placement reads
statements   what schedulers publish besides placements: evictions, gangs, quotas, explanations

Source:
    event-bus spec, 3.2
"""
