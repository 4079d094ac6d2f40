"""The answers to refused clients, and the headers that every answer carries."""
