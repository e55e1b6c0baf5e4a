"""What to copy, keep, delete and link, in which order, and whether it fits; changes nothing."""
