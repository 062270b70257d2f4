import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer on its defaults goes on from what its group has committed, and lives through what happens to the broker.
 *
 * <p>Usage: Resume BOOTSTRAP TOPIC COMMIT TOTAL
 *
 * <p>Reads until it has TOTAL records and commits, with its leader epoch, the one that is number COMMIT (0: none). A
 * line out for each record: {"offset": N, "epoch": N}.
 */
public final class Resume {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        int commit = Integer.parseInt(arguments[2]);
        int total = Integer.parseInt(arguments[3]);
        Map<String, Object> settings =
                Map.of("bootstrap.servers", arguments[0], "group.id", "readers", "enable.auto.commit", false);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.assign(List.of(partition));
            if (commit > 0) {
                consumer.seekToBeginning(List.of(partition));
            }
            int seen = 0;
            while (seen < total) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    seen++;
                    int epoch = record.leaderEpoch().orElse(-1);
                    System.out.println(
                            JSON.createObjectNode().put("offset", record.offset()).put("epoch", epoch));
                    if (seen == commit) {
                        consumer.commitSync(Map.of(
                                partition, new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), "")));
                    }
                }
            }
        }
    }
}
