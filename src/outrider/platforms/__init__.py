"""What the machine at hand is and can do."""
