"""The user's files as samples: which they are, and how one is read, decoded and resized."""
