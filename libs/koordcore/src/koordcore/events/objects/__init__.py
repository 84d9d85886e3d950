"""Mirrored API objects, and actions of the gateway to Kubernetes."""
