"""Reservation: pods use what was reserved for them."""
