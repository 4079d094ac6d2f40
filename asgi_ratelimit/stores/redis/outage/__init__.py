"""What happens while Redis is out: when it counts as out, who decides, and what is charged afterwards."""
