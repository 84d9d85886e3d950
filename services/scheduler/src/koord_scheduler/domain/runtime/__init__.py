"""The frameworks of one process: profiles over the facts of the cluster, built from the configuration."""
