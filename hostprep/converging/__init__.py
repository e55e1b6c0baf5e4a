"""A whole spec against this host: what differs, making it so, and looking again."""
