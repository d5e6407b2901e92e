"""A fog of sites on this machine, for trying, testing and measuring; the service does not need it.

Each site has a real broker, Mosquitto (`mosquitto.py`) or Kafka (`kafka.py`), and a real Flink
(`flink.py`). `sites.py` brings them up and down, `state.py` records them, and `wan/` puts a network
between them. `replay.py` publishes a trace, and `reference.py` computes the expected results. Begin
with `sites.py`.
"""
