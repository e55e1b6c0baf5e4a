"""How many DataLoader workers: a model (pure), real measurements in fresh processes, a verdict."""
