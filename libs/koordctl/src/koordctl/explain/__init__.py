"""Explanations of pods, nodes and quotas, computed from the events of the log. These modules are pure."""
