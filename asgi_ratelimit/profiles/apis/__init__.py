"""Data of the profiles, one for each API, by what the APIs are for."""
