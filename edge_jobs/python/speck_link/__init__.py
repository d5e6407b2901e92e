"""The link client of speck's job contract for programs in Python: reads one link, writes another.

It keeps what edge_jobs/README.md ("Delivery", "Links") says of sources and sinks: stamps, taken and
sent numbers, marks, batches, the resend window, sessions. A program gives `run` a function:

    from speck_link.job import run

    run(lambda record: [record.upper()])

`job.py` joins the parts in one thread: `source.py` and `sink.py` talk to the brokers through
`connection.py` (paho-mqtt), `state.py` keeps everything in one SQLite database, `taken.py` and
`numbers.py` know which records have come. Nothing but the standard library and paho-mqtt is used.
"""
