"""What the plugins answered for each kind of pod, kept and brought up to date row by row.

Pods of one class share a view; classes that differ in requests only share the part that reads the shape of nodes
(labels, taints). After a placement only the touched node is judged again. A view never changes an outcome: judging all
rows afresh gives the same arrays (tested).

kept        the views of one engine               view      all nodes as one kind of pod sees them
answers     the plugins, asked about some rows    verdicts  who refuses a row why, as one number and in words
row_functions  the same for one row without arrays   scores    what raw scores are worth: weights and normalization
totals      the sums, and the orders over them

Answers that depend on pods on other nodes are not cached here: `engine` asks the cross-node filters at each decision.

Source:
    scheduler-core spec, 12.2 b (equivalence classes)
"""
