"""Tests of requests that keep to the limits that their servers report."""
