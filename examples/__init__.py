"""Small apps with limits, and the demo that talks to them."""
