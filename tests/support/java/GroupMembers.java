import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of a group, told by lines what to do; the same lines as tests/interop/groups/members.py. */
public final class GroupMembers {
    private static final PrintStream OUT = System.out;

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String member;
        private final BlockingQueue<List<String>> wishes = new LinkedBlockingQueue<>();
        private volatile boolean stopped;

        Member(String kind, String bootstrap, String group, String topic, String name) {
            member = name;
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", group);
            settings.put("client.id", name);
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", "earliest");
            settings.put("metadata.max.age.ms", "500");
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
            if (kind.equals("java-consumer")) {
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("session.timeout.ms", "3000");
                settings.put("heartbeat.interval.ms", "300");
            }
            consumer = new KafkaConsumer<>(settings);
            consumer.subscribe(List.of(topic), this);
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            while (!stopped) {
                List<String> topics = wishes.poll();
                if (topics != null) {
                    consumer.subscribe(topics, this);
                }
                consumer.poll(Duration.ofMillis(100));
            }
            consumer.close();
        }

        void subscribe(List<String> topics) {
            wishes.add(topics);
        }

        void leave() throws InterruptedException {
            stopped = true;
            join();
        }

        private void report(String event, Collection<TopicPartition> partitions) {
            String numbers = partitions.stream()
                .map(one -> "\"" + one + "\"").sorted()
                .collect(Collectors.joining(", "));
            synchronized (OUT) {
                OUT.printf("{\"at_ns\": %d, \"member\": \"%s\", \"event\": \"%s\", \"partitions\": [%s]}%n",
                    System.nanoTime(), member, event, numbers);
                OUT.flush();
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            report("assign", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            report("revoke", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            report("lost", partitions);
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        OUT.println("ready");
        while ((line = in.readLine()) != null && !line.equals("stop")) {
            String[] words = line.split(" ");
            if (words[0].equals("add")) {
                members.put(words[1], new Member(args[0], args[1], args[2], args[3], words[1]));
            } else if (words[0].equals("subscribe")) {
                members.get(words[1]).subscribe(List.of(words).subList(2, words.length));
            } else if (words[0].equals("leave")) {
                members.remove(words[1]).leave();
            }
        }
        for (Member member : members.values()) {
            member.leave();
        }
        System.exit(0);
    }
}
