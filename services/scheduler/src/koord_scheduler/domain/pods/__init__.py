"""Facts about pods: records, equivalence classes, kinds for constraints, and how a pod counts on a node."""
