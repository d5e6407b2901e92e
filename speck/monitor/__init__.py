"""What goes wrong at sites, and what repairs it: jobs' health, lost sessions, requirements.

`health`, `links` and `requirements` decide and are pure. Imports `speck.deploy`, `speck.sites`
and `speck.placement`. Begin with `watch`.
"""
