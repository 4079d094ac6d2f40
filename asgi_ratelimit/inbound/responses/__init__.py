"""What a refused client is answered, and what headers every answer carries."""
