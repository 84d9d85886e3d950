"""Folds the log into a scheduler's state: records facts, and reconciles the pods that they concern.

log      folds the next event, an event that is read ahead, or a node's report
pods     facts of the API about pods            placements   facts of the log about their nodes
objects  nodes, and other objects that placement reads

Source: event-bus spec, 3.2
"""
