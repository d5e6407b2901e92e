"""The HTTP API: parse, call the use case, render. GET /docs describes it."""
