"""Status of the objects that the descheduler works on, rendered from its facts."""
