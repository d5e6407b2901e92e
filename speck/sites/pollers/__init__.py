"""Processes that poll sites for the service, once there are many.

All threads of a Python process share one core. Polls of a thousand sites keep it busy, and the
requests and changes of the service would wait for them. So poller processes make the requests and
read the answers; store, planner and API stay in the service. A poller holds no state that matters:
it is started again when it dies. It ends with the service, whose end of their socket closes then.

Imports the contracts in `speck.binding`. Begin with `polling`, then `pool` and `process`.
"""
