"""One connection to a Redis: where it leads, what is sent, what comes back."""
