"""What goes wrong at sites, and what repairs it: jobs' health, lost sessions, requirements.

`health`, `links` and `requirements` decide and are pure. Imports `speck.deploy`, `speck.sites`
and `speck.placement`. Begin with `watch`: it looks at the sites, has `watched_jobs` say which jobs
ought to run, `progress` how far they got, `health` what is amiss, `health_events` tell it and
`repairs` mend it.
"""
