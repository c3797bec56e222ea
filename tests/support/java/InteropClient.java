import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client for tests: one JSON command per line in, one JSON answer per line out. */
public final class InteropClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(200);

    // The address, and how to log in.
    private final Properties common;
    private final Admin admin;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    private InteropClient(Properties common) {
        this.common = common;
        Properties settings = copy(common);
        settings.put("default.api.timeout.ms", "20000");
        settings.put("request.timeout.ms", "15000");
        this.admin = Admin.create(settings);
    }

    private static Properties copy(Properties from) {
        Properties made = new Properties();
        made.putAll(from);
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // Anything a library prints goes to stderr: stdout carries answers only.
        System.setOut(System.err);
        Properties common = new Properties();
        if (arguments.length > 1) {
            try (FileInputStream file = new FileInputStream(arguments[1])) {
                common.load(file);
            }
        }
        common.put("bootstrap.servers", arguments[0]);
        InteropClient client = new InteropClient(common);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(client.answer(JSON.readTree(line))));
        }
        client.admin.close(Duration.ofSeconds(1));
    }

    private ObjectNode answer(JsonNode command) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            run(command, answer);
        } catch (Exception failed) {
            Throwable cause = failed instanceof ExecutionException ? failed.getCause() : failed;
            answer.put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    private void run(JsonNode command, ObjectNode answer) throws Exception {
        String topic = command.path("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        TopicPartition partition = new TopicPartition(topic, command.path("partition").asInt());
        switch (command.get("command").asText()) {
            case "produce" -> produce(partition, command, answer);
            case "consume" -> consume(partition, command, answer);
            case "offset_at" -> offsetAt(partition, command.get("timestamp_ms").asLong(), answer);
            case "create_topic" -> {
                NewTopic wanted = new NewTopic(topic, command.get("partitions").asInt(), (short) 1);
                admin.createTopics(List.of(wanted.configs(strings(command.get("configs"))))).all().get();
            }
            case "topic_names" -> {
                ArrayNode names = answer.putArray("names");
                admin.listTopics().names().get().forEach(names::add);
            }
            case "partition_count" -> answer.put("count",
                admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            case "topic_configs" -> {
                ObjectNode configs = answer.putObject("configs");
                for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
                    configs.put(entry.name(), entry.value());
                }
            }
            case "set_config" -> {
                ConfigEntry entry = new ConfigEntry(command.get("name").asText(), command.get("value").asText());
                AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            }
            case "add_partitions" -> admin.createPartitions(
                Map.of(topic, NewPartitions.increaseTo(command.get("total").asInt()))).all().get();
            case "delete_records" -> answer.put("low_watermark", admin.deleteRecords(
                Map.of(partition, RecordsToDelete.beforeOffset(command.get("before_offset").asLong())))
                .lowWatermarks().get(partition).get().lowWatermark());
            case "delete_topic" -> admin.deleteTopics(List.of(topic)).all().get();
            case "begin", "send", "send_offsets", "commit", "abort", "close_producer" ->
                transaction(partition, command, answer);
            case "transactions" -> {
                ObjectNode states = answer.putObject("states");
                for (TransactionListing listing : admin.listTransactions().all().get()) {
                    states.put(listing.transactionalId(), listing.state().toString());
                }
            }
            case "describe_transaction" -> {
                TransactionDescription found = admin.describeTransactions(List.of(command.get("id").asText()))
                    .all().get().get(command.get("id").asText());
                answer.put("state", found.state().toString()).put("timeout_ms", found.transactionTimeoutMs());
                ArrayNode partitions = answer.putArray("partitions");
                found.topicPartitions().forEach(part -> partitions.add(part.toString()));
            }
            case "producers" -> {
                ArrayNode starts = answer.putArray("starts");
                admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()
                    .forEach(state -> starts.add(state.currentTransactionStartOffset().orElse(-1)));
            }
            case "fence" -> admin.fenceProducers(List.of(command.get("id").asText())).all().get();
            default -> throw new IllegalArgumentException("no such command: " + command);
        }
    }

    private void produce(TopicPartition partition, JsonNode command, ObjectNode answer) throws Exception {
        Properties settings = copy(common);
        settings.put("compression.type", command.get("codec").asText());
        settings.put("acks", command.path("acks").asText("all"));
        settings.put("enable.idempotence", command.path("idempotent").asText("true"));
        settings.put("max.request.size", "20000000");
        settings.put("buffer.memory", "67108864");
        settings.put("linger.ms", "5");
        ArrayNode offsets = answer.putArray("offsets");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode message : command.get("messages")) {
                Long timestamp = message.path("timestamp_ms").isNumber() ? message.get("timestamp_ms").asLong() : null;
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(partition.topic(), partition.partition(),
                    timestamp, bytes(message.get("key")), bytes(message.get("value")));
                for (JsonNode header : message.get("headers")) {
                    record.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> future : sent) {
                offsets.add(future.get().offset());
            }
        }
    }

    private void transaction(TopicPartition partition, JsonNode command, ObjectNode answer) throws Exception {
        String id = command.get("id").asText();
        KafkaProducer<byte[], byte[]> producer = producers.get(id);
        switch (command.get("command").asText()) {
            case "begin" -> {
                if (producer == null) {
                    producer = transactionalProducer(
                        command.get("transactional_id").asText(), command.get("request_timeout_ms").asText());
                    producers.put(id, producer);
                    producer.initTransactions();
                }
                producer.beginTransaction();
            }
            case "send" -> {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonNode value : command.get("values")) {
                    sent.add(producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), null, bytes(value))));
                }
                for (Future<RecordMetadata> future : sent) {
                    answer.put("offset", future.get().offset());
                }
            }
            case "send_offsets" -> producer.sendOffsetsToTransaction(
                Map.of(partition, new OffsetAndMetadata(command.get("offset").asLong())),
                new ConsumerGroupMetadata(command.get("group").asText()));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> {
                producers.remove(id);
                producer.close(Duration.ZERO);
            }
        }
    }

    private KafkaProducer<byte[], byte[]> transactionalProducer(String transactionalId, String requestTimeoutMs) {
        Properties settings = copy(common);
        settings.put("transactional.id", transactionalId);
        settings.put("delivery.timeout.ms", "20000");
        settings.put("request.timeout.ms", requestTimeoutMs);
        settings.put("max.block.ms", "20000");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void consume(TopicPartition partition, JsonNode command, ObjectNode answer) {
        int count = command.get("count").asInt();
        long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        ArrayNode messages = answer.putArray("messages");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(partition));
            if (command.get("offset").isNull()) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, command.get("offset").asLong());
            }
            while (messages.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    if (messages.size() < count) {
                        messages.add(asJson(record));
                    }
                }
            }
        }
    }

    private void offsetAt(TopicPartition partition, long timestamp, ObjectNode answer) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition);
            answer.put("offset", found == null ? null : (Long) found.offset());
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = copy(common);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("default.api.timeout.ms", "20000");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static ObjectNode asJson(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("offset", record.offset()).put("timestamp_ms", record.timestamp());
        node.put("key", text(record.key())).put("value", text(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return node;
    }

    private static byte[] bytes(JsonNode node) {
        return Optional.ofNullable(node).filter(n -> !n.isNull())
            .map(n -> Base64.getDecoder().decode(n.asText())).orElse(null);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> found = new HashMap<>();
        node.fields().forEachRemaining(field -> found.put(field.getKey(), field.getValue().asText()));
        return found;
    }
}
