"""How much is lost by what ``hostprep recommend`` says, and by the rules that frameworks have."""
