"""What the storage under a path really gives."""
