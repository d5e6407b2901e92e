package io.speck.link.protocol;

/**
 * What a sink says of its records beside the last number: it knows, and nobody else would.
 *
 * @param refused how many it holds now because the broker refuses them
 * @param leftOut how many it has left out, since no broker would take them
 * @param lost how many it has given up: under at_most_once those that were on the wire, and those
 *     of a link that is not the job's any more and has no reader
 * @param problem why nothing gets through now; null: nothing is known to be wrong
 */
public record SinkReport(long refused, long leftOut, long lost, String problem) {
    public static final SinkReport NOTHING = new SinkReport(0, 0, 0, null);

    /** Returns the fields of a JSON object that are worth saying, each with a comma behind it. */
    String toJsonFields() {
        StringBuilder json = new StringBuilder();
        append(json, "refused", refused);
        append(json, "left_out", leftOut);
        append(json, "lost", lost);
        if (problem != null) {
            json.append("\"problem\":").append(Json.quote(problem)).append(',');
        }
        return json.toString();
    }

    private static void append(StringBuilder json, String name, long count) {
        if (count > 0) {
            json.append('"').append(name).append("\":").append(count).append(',');
        }
    }
}
