"""Detects problems at sites and repairs them: jobs' health, lost sessions, requirements.

`health`, `links`, `lost_tails`, `link_reports` and `requirements` decide and are pure. Imports
`speck.deploy`, `speck.sites` and `speck.placement`. Begin with `watch`: it polls the sites.
`watched_jobs` lists the jobs that should run, `progress` reads their progress, `health` finds
problems, `failure_causes` asks engines for their reasons, `health_events` reports them and
`repairs` repairs them; `link_watch` reads what connectors report.
"""
