"""The scheduling queue, pods that wait at Permit, and nominated pods."""
