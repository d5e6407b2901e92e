"""One supervised process per job, under the runner beside a site's agent (`speck.runner`); entry
point `process` of `speck.engines`. Begin with `engine.py`."""
