"""Passes everything on."""

from speck_link.job import run

if __name__ == "__main__":
    run(lambda record: (record,))
