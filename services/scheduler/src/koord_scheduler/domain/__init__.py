"""Pure scheduling: which node, and why.

columns    the nodes as arrays                    classes  what the plugins read of a pod
plugins/   filters and scores over all nodes      views      their cached answers per kind of pod
engine     one decision with its explanation      queue      which pod is next
state      all that is known                      folding/   the log folded into it
deciding   decisions on top                       work       which of them may be appended together
"""
