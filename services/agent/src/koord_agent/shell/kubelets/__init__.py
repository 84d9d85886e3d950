"""The kubelet of this machine and the events of its pods."""
