"""The HTTP API: parse, call the use case, render. docs/api.md and GET /docs describe it."""
