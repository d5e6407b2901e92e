"""The command line: it reaches the service over HTTP only, and runs what needs no service.

`commands/` has one module for each command; the other modules hold what commands share. Begin with
`main.py` and `options.py`.
"""
