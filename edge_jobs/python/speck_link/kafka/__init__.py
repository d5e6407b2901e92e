"""Links over Kafka, with kafka-python: a topic is a log in which each reader has a place.

The place is the committed offset of the consumer group that has the reader's client id; what was
sent is what lies in the log. A twin of edge_jobs/kafka, in the same order: begin with
`connection.py`, whose `KafkaEnd` keeps one end of a link connected; `reader.py` and `writer.py` are
its two kinds of ends, `start.py` decides where a reader begins, `tail.py` finds what a writer has
sent. Only what is imported by `speck_link.brokers` when a link is at such a broker imports Kafka's
client: that takes 12 MB.
"""
