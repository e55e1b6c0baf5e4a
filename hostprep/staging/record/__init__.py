"""What is kept about a data set: its manifest, its record, its digest."""
