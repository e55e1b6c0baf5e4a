"""How much is lost with what ``hostprep recommend`` says, and with the frameworks' rules."""
