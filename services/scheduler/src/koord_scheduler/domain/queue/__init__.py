"""Which pod is next: the scheduling queue, pods that wait at Permit, nominated pods."""
