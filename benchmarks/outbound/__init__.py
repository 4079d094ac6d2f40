"""Outgoing calls that wait for a slot: what one costs, how much quota is used, who is overtaken, and who is refused."""
