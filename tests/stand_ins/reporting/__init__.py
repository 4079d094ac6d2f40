"""Servers that report their limits in the headers of their answers."""
