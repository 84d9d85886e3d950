"""Strategies that keep the kernel files of pods and classes at the values of the NodeSLO."""
