"""Booked slots, and the callers of this process that wait for them."""
