import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What an administrator does with a topic, through Kafka's own client on its defaults.
 *
 * <p>Usage: Administer BOOTSTRAP TOPIC
 *
 * <p>One line out, of what was told. Ends with an exception if any call fails.
 */
public final class Administer {
    private static final int RECORDS = 10;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        TopicPartition first = new TopicPartition(topic, 0);
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        ObjectNode told = new ObjectMapper().createObjectNode();
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            told.put("partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            write(settings, topic);
            var deleted = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4)));
            told.put("lowWatermark", deleted.lowWatermarks().get(first).get().lowWatermark());
            var earliest = admin.listOffsets(Map.of(first, OffsetSpec.earliest()));
            told.put("earliest", earliest.partitionResult(first).get().offset());
            told.set("configs", new ObjectMapper().valueToTree(configs(admin, topic)));
            var cluster = admin.describeCluster();
            int broker = cluster.nodes().get().iterator().next().id();
            told.put("nodes", cluster.nodes().get().size()).put("controller", cluster.controller().get().id() == broker);
            var places = admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
            long size = places.values().iterator().next().replicaInfos().get(first).size();
            told.put("places", places.size()).put("hasBytes", size > 0);
            var producers = admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers();
            told.put("producers", producers.size()).put("lastSequence", producers.get(0).lastSequence());
        }
        System.out.println(told);
    }

    /** Sets one config, and tells which are not defaults. */
    private static Map<String, String> configs(Admin admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var change = new AlterConfigOp(new ConfigEntry("retention.ms", "7000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
        Map<String, String> found = new TreeMap<>();
        for (ConfigEntry one : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            if (!one.isDefault()) {
                found.put(one.name(), one.value() + " " + one.source() + " " + one.type());
            }
        }
        return found;
    }

    private static void write(Map<String, Object> settings, String topic) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (int n = 0; n < RECORDS; n++) {
                byte[] value = Integer.toString(n).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
            }
        }
    }
}
