"""The hook framework: which plug-ins run at which stage of a pod or container, and which values they change."""
