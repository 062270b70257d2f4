import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One producer on its defaults writes to a topic that is deleted and made again between its rounds.
 *
 * <p>Usage: Recreate BOOTSTRAP TOPIC ROUNDS
 *
 * <p>A line out for each round: {"partitions": N, "offsets": [...]}. Ends with an exception if any call fails.
 */
public final class Recreate {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int RECORDS = 20;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (Admin admin = Admin.create(settings);
                Producer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (int round = 0; round < Integer.parseInt(arguments[2]); round++) {
                var made = admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1)));
                made.all().get();
                ObjectNode line = JSON.createObjectNode().put("partitions", made.numPartitions(topic).get());
                report(line.putArray("offsets"), producer, topic);
                System.out.println(line);
                admin.deleteTopics(List.of(topic)).all().get();
            }
        }
    }

    private static void report(ArrayNode offsets, Producer<byte[], byte[]> producer, String topic) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int n = 0; n < RECORDS; n++) {
            byte[] value = Integer.toString(n).getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value)));
        }
        for (Future<RecordMetadata> one : sent) {
            offsets.add(one.get().offset());
        }
    }
}
