"""What decides for one pod: filters and scores of all nodes, cached per pod equivalence class.

Pods of one class share a view. Classes that differ only in requests share the part that reads the shape of nodes
(labels, taints). After a placement, only the affected node is evaluated again. A view never changes an outcome:
evaluating all nodes again gives the same arrays (tested). Cross-node filters are called in each cycle.

engine          the search; `decision` is what it is asked and answers
view            all nodes for one class of pods; `answers` calls the plugins, `view_scores` weights and normalizes,
                `view_totals` sums up and ranks
candidate_view  only the nodes that indexes find (`candidates`)
cross_node      results that depend on pods of other nodes
sampled         only as many nodes as a configuration asks for
families        classes that differ only in amounts share one evaluation of each changed node
frameworks      the profiles: plugins per extension point, and the engine of each

With many classes, such as one for each size of a part of a GPU, most of the work is that each class evaluates every
node that changed since its last look. The plugins tell which part of their results the classes of a family share
(`RowStates`). Nodes for which all classes get equal results are one cell (`family_cells`). A class (`family_member`)
evaluates cells instead of nodes. A family never changes an outcome either (tested).

Source: scheduler-core spec, 12.2 b (equivalence classes)
"""
