"""The processes that a benchmark starts, and what it measures in them."""
