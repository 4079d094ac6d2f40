"""Blocks for clients that do not stop, and lists of clients that are never limited or never let in."""
