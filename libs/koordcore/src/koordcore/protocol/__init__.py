"""The protocol: names, objects and rules that Kubernetes and Koordinator define. Pure."""
