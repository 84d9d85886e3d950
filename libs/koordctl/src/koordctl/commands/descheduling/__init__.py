"""Commands of the descheduler."""
