"""The source: what there is in it, how it answers, and by how many it is best read."""
