"""Limiters: quotas, a store, and the methods that a program calls."""
