"""Values of pods at their start: hook server, NRI plugin, and the reconcilers outside of cgroup files."""
