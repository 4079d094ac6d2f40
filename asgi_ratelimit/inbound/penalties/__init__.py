"""Blocks for clients that are refused again and again, and lists of clients that are exempt or always refused."""
