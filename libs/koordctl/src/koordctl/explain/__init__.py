"""Explanations of pods, nodes and quotas from the events of the log. Pure."""
