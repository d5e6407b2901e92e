package io.speck.mqtt.connection;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import io.speck.link.testing.LinkContract;
import io.speck.link.testing.TestBroker;
import io.speck.link.testing.Wait;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.TestClient;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

/** Links over Mosquitto. */
class MqttLinkTest extends LinkContract {
    private record Broker(Mosquitto mosquitto) implements TestBroker {
        private static final Pattern MESSAGES = Pattern.compile("\"messages\":(\\d+)");

        @Override
        public String address() {
            return mosquitto.address();
        }

        @Override
        public void reserve(String clientId, String topic) {
            var reserving =
                    MqttClient.builder()
                            .useMqttVersion5()
                            .identifier(clientId)
                            .serverHost("127.0.0.1")
                            .serverPort(mosquitto.port())
                            .buildBlocking();
            reserving.toAsync().publishes(MqttGlobalPublishFilter.ALL, message -> {}, true);
            reserving.connectWith().cleanStart(false).sessionExpiryInterval(600).send();
            reserving.subscribeWith().topicFilter(topic).qos(MqttQos.AT_LEAST_ONCE).send();
            reserving.disconnect();
            try (TestClient control = new TestClient(mosquitto)) {
                String made = new String(Topics.sessionMade(), UTF_8);
                control.retain(Topics.ofSession(topic, clientId), made);
            }
        }

        @Override
        public void publish(String topic, String record) {
            try (TestClient client = new TestClient(mosquitto)) {
                client.publish(topic, record, null).join();
            }
        }

        @Override
        public long taken(String clientId, String topic) throws Exception {
            try (TestClient client = new TestClient(mosquitto).listen(Topics.TAKEN + clientId)) {
                Wait.until("its report came", () -> !client.payloads().isEmpty());
                List<String> reports = client.payloads();
                Matcher messages = MESSAGES.matcher(reports.get(reports.size() - 1));
                return messages.find() ? Long.parseLong(messages.group(1)) : -1;
            }
        }

        @Override
        public void kill() throws Exception {
            mosquitto.kill();
        }

        @Override
        public void start() throws Exception {
            mosquitto.start();
        }

        @Override
        public void freeze() throws Exception {
            mosquitto.freeze();
        }

        @Override
        public void thaw() throws Exception {
            mosquitto.thaw();
        }

        @Override
        public void close() throws Exception {
            mosquitto.close();
        }
    }

    @TempDir Path folder;
    private Broker broker;

    @BeforeEach
    void startBroker() throws Exception {
        broker = new Broker(Mosquitto.started(folder));
    }

    @AfterEach
    void stopBroker() throws Exception {
        broker.close();
    }

    @Override
    protected TestBroker broker() {
        return broker;
    }
}
