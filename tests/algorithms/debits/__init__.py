"""Settlements to more than was charged."""
