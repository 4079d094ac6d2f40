"""One module for each limiter: how an app is put behind it, as its own documentation has it."""
