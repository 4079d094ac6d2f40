"""What a limit costs, side by side with the peers: ``scripts/bench``. A benchmark reports times and asserts none."""
