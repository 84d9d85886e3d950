"""Claims and volumes: their state in the API server, their use by placed pods, and the nodes that can reach them.

objects      claims, volumes and storage classes as values
matching     which volumes suit unbound claims on a node
books        all of this together, with the volumes that placed pods take
attachments  how many volumes of a CSI driver the pods of each node use
waiting      which changes help rejected pods
"""
