"""What runs in the measuring child, where alone the user's code is imported."""
