"""The commands, one module each, imported when a command is called."""
