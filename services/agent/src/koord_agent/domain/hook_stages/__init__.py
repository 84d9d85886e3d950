"""The hook framework: which plug-ins run at which stage of a pod's or container's life, and what they change."""
