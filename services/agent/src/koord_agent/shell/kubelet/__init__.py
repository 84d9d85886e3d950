"""The kubelet of this machine, and the cgroups of its pods."""
