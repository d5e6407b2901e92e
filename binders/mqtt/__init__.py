"""The binder for MQTT brokers such as Mosquitto: MQTT 5, or 3.1.1 without message numbers."""

from binders.mqtt.broker import MqttBroker

__all__ = ["MqttBroker"]
