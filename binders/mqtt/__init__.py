"""Binder for MQTT brokers (Mosquitto first): MQTT 5, and 3.1.1 without message numbers."""

from binders.mqtt.broker import MqttBroker

__all__ = ["MqttBroker"]
