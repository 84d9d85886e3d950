"""The kubelet of this machine, and events of cgroups."""
