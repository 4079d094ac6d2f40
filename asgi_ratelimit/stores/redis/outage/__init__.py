"""What happens while Redis is out: when it counts as out, who decides, and what Redis is charged with afterwards."""
