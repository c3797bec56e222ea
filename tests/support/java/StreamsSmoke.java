import java.time.Duration;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/**
 * The driver of Kafka's own smoke test of Kafka Streams, with less data than its main program.
 *
 * Arguments: the address of a node, and how long to produce, in seconds. Prints PASSED at the end
 * if every result is exact.
 */
public class StreamsSmoke {
    private static final int KEYS = 10;
    private static final int RECORDS_PER_KEY = 200;

    public static void main(String[] arguments) throws Exception {
        Duration time = Duration.ofSeconds(Long.parseLong(arguments[1]));
        var sent = SmokeTestDriver.generate(arguments[0], KEYS, RECORDS_PER_KEY, time);
        System.out.println("PRODUCED");
        var result = SmokeTestDriver.verify(arguments[0], sent, RECORDS_PER_KEY, true);
        if (!result.passed()) {
            // It does not expect a marker between two of its looks. What is wrong stays wrong.
            Thread.sleep(10_000);
            result = SmokeTestDriver.verify(arguments[0], sent, RECORDS_PER_KEY, true);
        }
        System.out.println(result.result());
        System.out.println(result.passed() ? "PASSED" : "FAILED");
    }
}
