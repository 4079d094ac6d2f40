"""Incoming requests: which rules apply, how much a request is charged, and how a refused one is answered."""
