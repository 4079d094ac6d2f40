"""A connection to Redis: its address, what travels over it, deadlines, and errors."""
