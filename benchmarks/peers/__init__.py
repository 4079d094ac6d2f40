"""One module for each limiter; each sets it up as its own documentation does."""
