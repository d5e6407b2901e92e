"""Placement policies: which site each job should run on, from measured loads. Pure, no I/O.

A policy maps `(loads, flows, sites, limits)` to a placement with reasons. Begin with
`speck.placement.model`; `policies` lists all policies, `problem` builds the problem from an
analysis, `rendering` turns a placement into a composition, and `autopilot` decides whether to
apply one unasked.
"""
