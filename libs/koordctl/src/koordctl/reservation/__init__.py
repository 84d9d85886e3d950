"""Reservations: `koord reserve` and `koord explain reservation`."""
