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
    private static final int ATTEMPTS = 10;

    public static void main(String[] arguments) throws Exception {
        Duration time = Duration.ofSeconds(Long.parseLong(arguments[1]));
        var sent = SmokeTestDriver.generate(arguments[0], KEYS, RECORDS_PER_KEY, time);
        System.out.println("PRODUCED");
        var result = SmokeTestDriver.verify(arguments[0], sent, RECORDS_PER_KEY, true);
        for (int left = ATTEMPTS - 1; left > 0 && !result.passed(); left--) {
            // It fails at once if a transaction ends between its look at the end of a partition and
            // its look at how far that is decided. What is wrong stays wrong.
            Thread.sleep(2_000);
            result = SmokeTestDriver.verify(arguments[0], sent, RECORDS_PER_KEY, true);
        }
        System.out.println(result.result());
        System.out.println(result.passed() ? "PASSED" : "FAILED");
    }
}
