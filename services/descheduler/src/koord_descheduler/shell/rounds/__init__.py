"""A round of the descheduler: decide it, record it, carry it out, explain it."""
