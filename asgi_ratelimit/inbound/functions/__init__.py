"""Functions of the program: what is refused at start, how they are called, and what happens where they fail."""
