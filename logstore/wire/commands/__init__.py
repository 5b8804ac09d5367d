"""The commands, one module a family; each module has a list ``COMMANDS``, for the catalogue."""
