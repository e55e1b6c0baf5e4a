"""What the GPU does during a training as people find it, and with hostprep's advice."""
