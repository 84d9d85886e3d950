"""Base of configuration files in the style of KubeSchedulerConfiguration: models, and lists of problems."""
