"""Descheduler: rounds of plugins find pods that should move, and migrations move them."""
