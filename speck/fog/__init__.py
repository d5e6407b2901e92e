"""A fog on this machine, for trying, testing and measuring; the service does not need it."""
