"""The agent of a site: it tells the control plane how the site is, and hands state to others.

It dials out and runs beside the engine on small machines: only the standard library here.
"""
