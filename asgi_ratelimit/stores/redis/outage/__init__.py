"""Outages of Redis: when it counts as out, who decides meanwhile, and what it is charged with afterwards."""
