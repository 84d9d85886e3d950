"""Pure scheduling: decides which pod goes to which node, and explains why. Nothing here reads or writes the outside.

state      everything that is known, and `folding` brings the log into it
queue      chooses the next pod
cycle      decides: attempts, reservations, and what is assumed until the log has stored it
evaluate   filters and scores the nodes for one pod
plugins    the built-in plugins, over the nodes as arrays (`columns`)
commit     puts decisions together into what may be appended at once
"""
