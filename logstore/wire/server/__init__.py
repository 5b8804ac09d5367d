"""The server of ``logstore serve``: where it listens, whom it lets in, how it answers."""
