"""The pods and nodes of the cluster: records, equivalence classes, ledgers, population."""
