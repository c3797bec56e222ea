import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads so many records of partition 0 from its start: BOOTSTRAP TOPIC RECORDS. */
public class AssignedConsumer {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        // What Kafka's ConsumerPerformance sets by itself.
        settings.put("receive.buffer.bytes", String.valueOf(2 * 1024 * 1024));
        settings.put("max.partition.fetch.bytes", String.valueOf(1024 * 1024));
        settings.put("check.crcs", "false");
        long wanted = Long.parseLong(arguments[2]);
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long read = 0;
            // The first fifth compiles the client; it is not counted.
            long first = wanted / 5;
            long countFrom = 0;
            long began = 0;
            while (read < wanted) {
                read += consumer.poll(Duration.ofMillis(100)).count();
                if (began == 0 && read >= first) {
                    began = System.nanoTime();
                    countFrom = read;
                }
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf("rate %.1f%n", (read - countFrom) / seconds);
        }
    }
}
