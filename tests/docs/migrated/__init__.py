"""Apps behind other limiters, each beside its port to this package."""
