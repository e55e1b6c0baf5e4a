"""The worker processes: fed by one loop over pipes, no more of them than help."""
