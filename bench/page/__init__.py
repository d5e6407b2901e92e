"""docs/results: one module for each experiment, `small` for those that need no more than a table,
and what they share."""
