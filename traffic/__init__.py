"""The paper's traffic application as a demo (`make demo`), with what its results have to be.

Runs from a checkout, as it needs `compositions/traffic` and the jobs' jars. Imports `speck`, which
never imports it. Begin with `demo.py`.
"""
