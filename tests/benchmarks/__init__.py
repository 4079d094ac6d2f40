"""Tests of the benchmarks: what they make of measured figures."""
