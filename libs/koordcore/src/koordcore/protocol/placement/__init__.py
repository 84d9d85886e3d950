"""Kubernetes' rules about which nodes a pod accepts: taints with tolerations, and node selector terms."""
