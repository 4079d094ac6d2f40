"""The tests, and the real servers that they talk to."""
