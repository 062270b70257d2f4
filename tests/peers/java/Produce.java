import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends the records of standard input with a producer on its defaults, so idempotent and acks=all.
 *
 * <p>Usage: Produce BOOTSTRAP [key=value ...]
 *
 * <p>A line in: {"topic": T, "partition": P?, "timestamp": MS?, "key": K?, "value": V?, "headers": [[NAME, VALUE?], ...]?}.
 * A line out for each, in order: {"topic", "partition", "offset", "timestamp"} or {"error": NAME, "message"}.
 * Ends with 1 if any record failed.
 */
public final class Produce {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        boolean failed;
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            failed = report(sendAll(producer));
        }
        System.exit(failed ? 1 : 0);
    }

    private static List<Future<RecordMetadata>> sendAll(Producer<byte[], byte[]> producer) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            sent.add(producer.send(record(JSON.readTree(line))));
        }
        return sent;
    }

    private static boolean report(List<Future<RecordMetadata>> sent) throws InterruptedException {
        boolean failed = false;
        for (Future<RecordMetadata> one : sent) {
            ObjectNode line = JSON.createObjectNode();
            try {
                RecordMetadata where = one.get();
                line.put("topic", where.topic()).put("partition", where.partition());
                line.put("offset", where.offset()).put("timestamp", where.timestamp());
            } catch (ExecutionException error) {
                failed = true;
                line.put("error", error.getCause().getClass().getSimpleName());
                line.put("message", error.getCause().getMessage());
            }
            System.out.println(line);
        }
        return failed;
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode line) {
        Integer partition = line.hasNonNull("partition") ? line.get("partition").asInt() : null;
        Long timestamp = line.hasNonNull("timestamp") ? line.get("timestamp").asLong() : null;
        ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(
                        line.get("topic").asText(), partition, timestamp, text(line.get("key")), text(line.get("value")));
        for (JsonNode header : line.path("headers")) {
            record.headers().add(header.get(0).asText(), text(header.get(1)));
        }
        return record;
    }

    private static byte[] text(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText().getBytes(StandardCharsets.UTF_8);
    }
}
