"""Choice of GPUs of one node for a pod.

gpu_tree     by the topology tree of the node
partitions   by a table of partitions
one_share    a part of one GPU, from the free amounts of the cards alone
"""
