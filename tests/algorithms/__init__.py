"""Tests of the arithmetic of admission."""
