"""The HTTP API. A route parses the request, calls a use case of `speck.service` and renders its
result.

One module for the routes of each noun. `routes.py` declares routes, `requests.py` reads requests,
`problems.py` maps errors to responses, `access.py` holds the roles, and `shapes/` the responses.
Begin with `app.py`, then `jobs.py`. GET /docs describes the API to its users.
"""
