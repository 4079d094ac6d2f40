"""The measurements, one module each; ``run`` returns their tables."""
