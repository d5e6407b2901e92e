"""Jobs of PySpark under the runner beside a site's agent; entry point `spark` of `speck.engines`.
Begin with `engine.py`."""
