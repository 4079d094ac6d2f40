"""Callers that wait, with and without ``async``: for a slot, for their own keys, or for a place under a limit."""
