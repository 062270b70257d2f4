import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A transactional producer on its defaults that begins.
 *
 * <p>Usage: Transact BOOTSTRAP
 *
 * <p>One line out: {"millis": N, "error": text}, without an error if it could.
 */
public final class Transact {
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "transactional.id", "payments");
        ByteArraySerializer bytes = new ByteArraySerializer();
        ObjectNode told = new ObjectMapper().createObjectNode();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            long begun = System.nanoTime();
            try {
                producer.initTransactions();
            } catch (RuntimeException error) {
                told.put("error", error.toString() + " " + error.getCause());
            }
            told.put("millis", (System.nanoTime() - begun) / 1_000_000);
        }
        System.out.println(told);
    }
}
