"""What a process counts, and writes into the store once a second, so that all processes can be summed up."""
