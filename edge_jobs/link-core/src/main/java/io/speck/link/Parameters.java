package io.speck.link;

import java.io.Serializable;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The arguments of a job's {@code main}: pairs {@code --name value}, or {@code --name=value}.
 *
 * <p>A name that is followed by another name or by nothing is a flag with the value {@code true}.
 * The last of several equal names counts. Every problem is an {@link IllegalArgumentException}
 * whose message begins with "cannot" and names the argument.
 */
public class Parameters implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final Pattern DURATION = Pattern.compile("(\\d+)\\s*(ms|s|m|min|h|d)");

    private final LinkedHashMap<String, String> values;

    private Parameters(LinkedHashMap<String, String> values) {
        this.values = values;
    }

    /** The same parameters. */
    protected Parameters(Parameters other) {
        this.values = other.values;
    }

    /** Reads the arguments of a {@code main}. */
    public static Parameters parse(String... args) {
        LinkedHashMap<String, String> values = new LinkedHashMap<>();
        int i = 0;
        while (i < args.length) {
            String word = args[i++];
            if (!word.startsWith("--") || word.length() == 2) {
                throw new IllegalArgumentException(
                        "cannot read the arguments: expected --name, got \"" + word + "\"");
            }
            int equals = word.indexOf('=');
            if (equals > 0) {
                values.put(word.substring(2, equals), word.substring(equals + 1));
            } else if (i < args.length && !args[i].startsWith("--")) {
                values.put(word.substring(2), args[i++]);
            } else {
                values.put(word.substring(2), "true");
            }
        }
        return new Parameters(values);
    }

    public boolean has(String name) {
        return values.containsKey(name);
    }

    /**
     * The value of an argument that must be there.
     *
     * @throws IllegalArgumentException when it is missing
     */
    public String get(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(
                    "cannot start the job: argument --" + name + " is missing");
        }
        return value;
    }

    public String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    /** A comma-separated list, without blanks and empty items. */
    public List<String> getList(String name) {
        List<String> items = new ArrayList<>();
        for (String item : get(name).split(",")) {
            if (!item.isBlank()) {
                items.add(item.trim());
            }
        }
        return Collections.unmodifiableList(items);
    }

    public int getInt(String name) {
        return (int) number(name, get(name), Integer.MIN_VALUE, Integer.MAX_VALUE);
    }

    public int getInt(String name, int otherwise) {
        return has(name) ? getInt(name) : otherwise;
    }

    public long getLong(String name) {
        return number(name, get(name), Long.MIN_VALUE, Long.MAX_VALUE);
    }

    public long getLong(String name, long otherwise) {
        return has(name) ? getLong(name) : otherwise;
    }

    public double getDouble(String name) {
        try {
            return Double.parseDouble(get(name));
        } catch (NumberFormatException e) {
            throw bad(name, "a number", e);
        }
    }

    public double getDouble(String name, double otherwise) {
        return has(name) ? getDouble(name) : otherwise;
    }

    public boolean getBoolean(String name, boolean otherwise) {
        if (!has(name)) {
            return otherwise;
        }
        String value = get(name);
        if (!value.equals("true") && !value.equals("false")) {
            throw bad(name, "true or false", null);
        }
        return value.equals("true");
    }

    /** A time span such as {@code 250ms}, {@code 10s}, {@code 5m} (or {@code 5min}), {@code 1h}. */
    public Duration getDuration(String name) {
        Matcher matcher = DURATION.matcher(get(name).trim());
        if (!matcher.matches()) {
            throw bad(name, "a duration such as 250ms, 10s, 5m or 1h", null);
        }
        try {
            long amount = Long.parseLong(matcher.group(1));
            return switch (matcher.group(2)) {
                case "ms" -> Duration.ofMillis(amount);
                case "s" -> Duration.ofSeconds(amount);
                case "h" -> Duration.ofHours(amount);
                case "d" -> Duration.ofDays(amount);
                default -> Duration.ofMinutes(amount);
            };
        } catch (NumberFormatException | ArithmeticException e) {
            throw bad(name, "a duration such as 250ms, 10s, 5m or 1h", e);
        }
    }

    public Duration getDuration(String name, Duration otherwise) {
        return has(name) ? getDuration(name) : otherwise;
    }

    /** A time span of at least a millisecond, in milliseconds. */
    public long getPositiveMillis(String name, Duration otherwise) {
        long millis = getDuration(name, otherwise).toMillis();
        if (millis < 1) {
            throw bad(name, "> 0", null);
        }
        return millis;
    }

    /** All arguments, in the order given. */
    public Map<String, String> asMap() {
        return Collections.unmodifiableMap(values);
    }

    @Override
    public String toString() {
        return values.toString();
    }

    private long number(String name, String value, long least, long most) {
        try {
            long number = Long.parseLong(value);
            if (number >= least && number <= most) {
                return number;
            }
            throw bad(name, "a whole number in range", null);
        } catch (NumberFormatException e) {
            throw bad(name, "a whole number", e);
        }
    }

    private IllegalArgumentException bad(String name, String wanted, Exception cause) {
        return new IllegalArgumentException(
                "cannot use --" + name + " \"" + get(name) + "\": it must be " + wanted, cause);
    }
}
