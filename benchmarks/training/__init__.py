"""How busy a GPU is during a training, with the usual settings and with hostprep's advice."""
