"""What runs in the measuring child, the only place where the user's code is imported."""
