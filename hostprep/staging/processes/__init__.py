"""The worker processes: fed by one loop over pipes, and no more of them than are useful."""
