"""docs/results.md: one module for each experiment, and what they share."""
