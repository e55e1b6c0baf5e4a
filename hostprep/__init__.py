"""hostprep makes a Linux host ready to feed a GPU."""

__version__ = "0.1.0"
