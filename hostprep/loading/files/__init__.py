"""The user's files as samples: which they are, how one is read, decoded and resized."""
