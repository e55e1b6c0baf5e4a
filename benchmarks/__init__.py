"""Side-by-side runs against peers, and the slow sources that they need."""
