"""The agent of a site: it reports the site's health to the control plane and transfers state to
and from other sites.

It connects to the service, never the other way round, and runs beside the engine on small
machines, so this package uses the standard library only. It imports `speck.errors` and
`speck.model.values`. Begin with `agent.py`; `work.py` carries out commands.
"""
