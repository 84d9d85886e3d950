"""The scheduling queue, and pods that wait at Permit."""
