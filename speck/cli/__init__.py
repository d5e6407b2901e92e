"""The command line: talks to the service over HTTP alone, and runs what needs no service."""
