"""Pure scheduling: decides which pod goes to which node, and explains why. The package has no effects outside.

state      the whole state; `folding` applies the log to it
queue      chooses the next pod
cycle      decides: attempts, reservations, and what is assumed until the log has stored it
evaluate   filters and scores the nodes for one pod
plugins    the built-in plugins, over the nodes as arrays (`columns`)
commit     collects decisions into batches that may be appended at once
"""
