"""Sends a request at its slot, for clients with and without ``async``."""
