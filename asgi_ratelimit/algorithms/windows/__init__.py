"""How windows count: what each of them contains, where there is room, and how a debit is paid back."""
