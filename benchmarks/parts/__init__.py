"""The measurements, one module each; ``run`` gives their table."""
