"""What is given back of a charge: which units come free, and what a state records for that."""
