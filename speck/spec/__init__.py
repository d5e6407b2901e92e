"""From text to the desired state: YAML and JSON, their schema, the graph, and the checks that need
the registered sites and the artifacts.

Imports `speck.model`. Begin with `schema` (text to descriptions) and `resolve` (descriptions to
jobs).
"""
