"""Each controller decides one kind of fact about the cluster: one folder or module per feature."""
