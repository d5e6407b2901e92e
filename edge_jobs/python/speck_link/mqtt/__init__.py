"""Links over MQTT 5, with paho-mqtt: readers have sessions, what is known of a link is retained."""
