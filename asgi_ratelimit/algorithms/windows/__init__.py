"""How windows count: what is in each of them, where there is room, and how a debit is paid back."""
