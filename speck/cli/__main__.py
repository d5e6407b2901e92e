"""`python -m speck.cli`: the same as `speck`."""

from speck.cli.main import main

main()
