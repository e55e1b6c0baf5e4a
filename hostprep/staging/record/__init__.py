"""What is known of a data set afterwards: its manifest, its record, its digest."""
