"""Cached results of plugins for each class of pods, updated for the nodes that changed.

Pods of one class share a view. Classes that differ only in requests share the part that reads the shape of nodes
(labels, taints). After a placement, only the affected node is evaluated again. A view never changes an outcome:
evaluating all nodes again gives the same arrays (tested).

view       all nodes for one class of pods, and the views of one engine
answers    calls the plugins for some nodes
refusals   filter statuses: which plugin refuses a node for which reason
scores     weights and normalizes raw scores
groups     nodes with equal raw scores of the plugins that normalize
totals     sums of scores, and rankings by them

Results that depend on pods on other nodes are not cached here: `engine` calls the cross-node filters in each cycle.

Source:
    scheduler-core spec, 12.2 b (equivalence classes)
"""
