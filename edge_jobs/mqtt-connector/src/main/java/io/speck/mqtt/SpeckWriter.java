package io.speck.mqtt;

import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;

/** All that Flink asks of a sink's writer. */
interface SpeckWriter
        extends StatefulSinkWriter<byte[], MqttSink.State>, CommittingSinkWriter<byte[], Batch> {}
