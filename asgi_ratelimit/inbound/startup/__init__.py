"""Checks that run once, when an app starts."""
