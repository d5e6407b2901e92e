"""The runner: supervises programs at a site, each of them one job of an engine of kind `process`.

It runs beside the site's agent as a process of its own, with a user and limits of its own, and uses
the standard library only. The agent carries orders to it and its status away
(`speck.agent.programs`). Programs outlive the runner and the agent; a runner that starts again goes
on with them. Begin with `runner.py`; `program.py` is the life of one program. Imports
`speck.agent` (for its folder), `speck.errors` and `speck.model.values`.
"""
