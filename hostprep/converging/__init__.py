"""A whole spec against this host: find what differs, change it, and check again."""
