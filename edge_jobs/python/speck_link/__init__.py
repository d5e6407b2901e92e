"""The link client of speck's job contract for programs in Python: reads one link, writes another.

It keeps what edge_jobs/README.md ("Delivery", "Links", "Links over Kafka") says of sources and
sinks: stamps, taken and sent numbers, marks, batches, the resend window, sessions and places. A
program gives `run` a function:

    from speck_link.job import run

    run(lambda record: [record.upper()])

`job.py` joins the parts in one thread: `source.py` and `sink.py` know what is to be taken and sent,
and reach brokers through a reader and a writer (`transport.py`), which `brokers.py` finds in
`mqtt/` (paho-mqtt) or `kafka/` (kafka-python). `state.py` keeps everything in one SQLite database,
`taken.py` and `numbers.py` know which records have come. Nothing but the standard library and the
client of the broker is used.
"""
