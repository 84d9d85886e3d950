"""Claims and volumes: what the API states about them, what placed pods take of them, and where a pod can reach them.

objects     claims, volumes and storage classes as values
available   unbound volumes of a storage class, by the node labels that they require
matching    which volumes suit unbound claims on a node
books       everything together, with what placed pods take
attached    how many volumes of a CSI driver the pods of each node use
"""
