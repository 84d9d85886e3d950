"""Cached answers of plugins for each class of pods, brought up to date row by row.

Pods of one class share a view. Classes that differ only in requests share the part that reads the shape of nodes
(labels, taints). After a placement, only the affected node is evaluated again. A view never changes an outcome:
evaluating all rows again gives the same arrays (tested).

view       all nodes for one class of pods, and the views of one engine
answers    asks the plugins about some rows
refusals   filter statuses: which plugin refuses a row for which reason
scores     weights and normalizes raw scores
totals     sums of scores, and rankings by them

Answers that depend on pods on other nodes are not cached here: `engine` asks the cross-node filters in each cycle.

Source:
    scheduler-core spec, 12.2 b (equivalence classes)
"""
