"""Recovery: the numbered passes that make a store whole at open; the check, which changes nothing."""
