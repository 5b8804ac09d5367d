"""What an operation on a stream decides: adding, reading, deleting, trimming, renaming."""
