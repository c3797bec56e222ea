import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers of a share group, one per thread, until stdin ends. Each prints two lines for a record:
 * "said" before it acknowledges it, and "confirmed" after the broker has confirmed that; then what
 * it said, partition, offset, count of deliveries.
 */
public final class ShareWorkers {
    private static final PrintStream OUT = System.out;
    private static volatile boolean stopped;

    private static final class Said {
        final ConsumerRecord<byte[], byte[]> record;
        final AcknowledgeType type;

        Said(ConsumerRecord<byte[], byte[]> record, AcknowledgeType type) {
            this.record = record;
            this.type = type;
        }
    }

    /** MODE is explicit or implicit; SHARE is the part of records that are released, in percent. */
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String group = arguments[1];
        String topic = arguments[2];
        int count = Integer.parseInt(arguments[3]);
        boolean explicit = arguments[4].equals("explicit");
        int released = Integer.parseInt(arguments[5]);
        String acquireMode = arguments[6];
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Random chance = new Random(number);
            Thread thread = new Thread(() -> work(bootstrap, group, topic, explicit, released, acquireMode, chance));
            thread.start();
            threads.add(thread);
        }
        while (System.in.read() >= 0) {
            continue;
        }
        stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void work(
            String bootstrap, String group, String topic, boolean explicit, int released, String acquireMode, Random chance) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("max.poll.records", "20");
        settings.put("share.acquire.mode", acquireMode);
        settings.put("share.acknowledgement.mode", explicit ? "explicit" : "implicit");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            while (!stopped) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                List<Said> said = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    AcknowledgeType type = explicit && chance.nextInt(100) < released ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
                    if (explicit) {
                        consumer.acknowledge(record, type);
                    }
                    said.add(new Said(record, type));
                    tell("said", said.get(said.size() - 1));
                }
                if (said.isEmpty()) {
                    continue;
                }
                Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync();
                for (Said one : said) {
                    for (Map.Entry<TopicIdPartition, Optional<KafkaException>> result : results.entrySet()) {
                        if (result.getKey().partition() == one.record.partition() && result.getValue().isEmpty()) {
                            tell("confirmed", one);
                        }
                    }
                }
            }
        }
    }

    private static void tell(String what, Said one) {
        synchronized (OUT) {
            OUT.println(what + " " + one.type.name() + " " + one.record.partition() + " " + one.record.offset() + " " + one.record.deliveryCount().get());
            OUT.flush();
        }
    }
}
