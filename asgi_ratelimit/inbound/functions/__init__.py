"""Functions of the program: which ones are refused at start-up, how they are called, and what happens if they fail."""
