"""Recovery: the numbered passes that make a store whole at open; the check changes nothing."""
