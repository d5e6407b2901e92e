package io.speck.mqtt.bench;

import io.speck.mqtt.bench.Measurement.Settings;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Publishes to one topic, reads what arrives on another, and reports how much and how late; for
 * measuring what lies between the two (a job, a relay, nothing).
 *
 * <pre>java -cp speck-flink-connector.jar io.speck.mqtt.bench.Load HOST PORT</pre>
 *
 * Each line on stdin is a measurement: {@code IN OUT QOS BYTES WINDOW RATE WARM_UP_S SECONDS}. With
 * a rate of 0 at most a window of messages is between publisher and reader, as fast as it goes.
 * Otherwise that many are published each second, come what may, and each is late since it was due,
 * not since it was written. For each of them the lines {@code measuring}, {@code measured} and then
 * the result as JSON come on stdout, see {@link Measurement#measure}.
 */
public final class Load {
    private Load() {}

    public static void main(String[] args) throws IOException {
        if (args.length != 2) {
            System.err.println("usage: Load HOST PORT");
            System.exit(2);
        }
        String host = args[0];
        int port = Integer.parseInt(args[1]);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            Settings settings = parse(line.trim().split(" "));
            try (Measurement measurement = new Measurement(host, port, settings)) {
                System.out.println(measurement.measure());
            }
        }
    }

    private static Settings parse(String[] words) {
        return new Settings(
                words[0],
                words[1],
                Integer.parseInt(words[2]),
                Integer.parseInt(words[3]),
                Integer.parseInt(words[4]),
                Integer.parseInt(words[5]),
                Double.parseDouble(words[6]),
                Double.parseDouble(words[7]));
    }
}
