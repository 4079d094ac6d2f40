"""What is checked once, when an app starts."""
