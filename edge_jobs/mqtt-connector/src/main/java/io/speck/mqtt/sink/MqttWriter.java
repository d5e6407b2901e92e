package io.speck.mqtt.sink;

import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;

/** All that Flink asks of the sink's writers. */
interface MqttWriter
        extends StatefulSinkWriter<byte[], MqttSink.State>,
                CommittingSinkWriter<byte[], Committable> {}
