package io.speck.mqtt.connection;

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttClientBuilder;
import com.hivemq.client.mqtt.MqttClientSslConfig;
import com.hivemq.client.mqtt.MqttClientSslConfigBuilder;
import com.hivemq.client.mqtt.MqttClientTransportConfig;
import com.hivemq.client.mqtt.MqttClientTransportConfigBuilder;
import io.speck.link.transport.Credentials;
import io.speck.link.transport.LinkConfig;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/** The settings that all our clients have in common. */
final class ClientSettings {
    /** How long a broker keeps a reader's session: longer than any outage worth surviving. */
    static final long SESSION_EXPIRY_S = TimeUnit.DAYS.toSeconds(30);

    static final int KEEP_ALIVE_S = 15;

    private static final int CONNECT_TIMEOUT_S = 5;

    private ClientSettings() {}

    static MqttClientBuilder builder(LinkConfig link, EventLoops loops) {
        MqttAddress broker = MqttAddress.of(link.broker());
        MqttAddress address = ProxyRoutes.load().routeTo(broker);
        MqttClientTransportConfigBuilder transport =
                MqttClientTransportConfig.builder()
                        .serverHost(address.host())
                        .serverPort(address.port())
                        .socketConnectTimeout(CONNECT_TIMEOUT_S, TimeUnit.SECONDS)
                        .mqttConnectTimeout(CONNECT_TIMEOUT_S, TimeUnit.SECONDS);
        Credentials credentials = Credentials.forBroker(link.broker());
        if (credentials.ca() != null || broker.encrypted()) {
            transport = transport.sslConfig(sslConfig(credentials));
        }
        return MqttClient.builder()
                .identifier(link.clientId())
                .transportConfig(transport.build())
                .executorConfig()
                .nettyExecutor(loops.group())
                .applicationScheduler(DirectScheduler.INSTANCE)
                .applyExecutorConfig();
    }

    /** Without a CA it trusts what the JVM trusts; the broker's host name is always verified. */
    private static MqttClientSslConfig sslConfig(Credentials credentials) {
        MqttClientSslConfigBuilder ssl = MqttClientSslConfig.builder();
        if (credentials.ca() != null) {
            ssl = ssl.trustManagerFactory(credentials.createTrustManagers());
        }
        if (credentials.cert() != null) {
            ssl = ssl.keyManagerFactory(credentials.createKeyManagers());
        }
        return ssl.build();
    }

    static byte[] passwordOf(Credentials credentials) {
        String password = credentials.password() == null ? "" : credentials.password();
        return password.getBytes(StandardCharsets.UTF_8);
    }
}
