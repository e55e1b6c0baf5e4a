"""The source: its contents, how it answers, and how many readers suit it best."""
