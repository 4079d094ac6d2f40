"""The results of the parts: arithmetic, goals, tables and pictures."""
