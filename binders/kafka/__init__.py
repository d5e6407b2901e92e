"""Kafka's brokers (`kafka://host:9092`): topics of one partition as links, consumer groups as
sessions. Begin with `broker`; how a link lies in Kafka is described in docs/binders.md. Imports
`speck.binding`, `speck.model`, credentials and kafka-python."""
