"""Plugins of the Kubernetes descheduler, with its arguments."""
