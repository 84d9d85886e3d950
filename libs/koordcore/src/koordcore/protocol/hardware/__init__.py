"""Hardware of nodes as objects and sysfs describe it: CPUs and NUMA zones, devices, requests for devices, PCI."""
