"""One entry at a time: its bytes, copied and verified, and all its metadata."""
