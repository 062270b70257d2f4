import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group, as tests/clients/member.py is one: KIND BOOTSTRAP TOPIC GROUP.
 *
 * <p>KIND is classic, a slash, and the class of an assignor; or consumer (KIP-848), a slash, and an assignor of the
 * broker. A TOPIC that begins with ^ is a pattern. A SIGTERM makes it leave.
 */
public final class Member {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<String> OWN = new TreeSet<>();
    private static volatile boolean stopping;

    public static void main(String[] arguments) {
        String[] kind = arguments[0].split("/", 2);
        boolean classic = kind[0].equals("classic");
        String session = System.getenv().getOrDefault("DRAY_TEST_SESSION_MS", "6000");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("group.id", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("metadata.max.age.ms", "1000");
        settings.put("max.poll.records", "10");
        settings.put("group.protocol", kind[0]);
        if (classic) {
            settings.put("session.timeout.ms", session);
            settings.put("heartbeat.interval.ms", String.valueOf(Integer.parseInt(session) / 8));
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + kind[1]);
        } else {
            settings.put("group.remote.assignor", kind[1]);
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes);
        CountDownLatch left = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> leave(consumer, left)));
        try (consumer) {
            subscribe(consumer, arguments[2], classic);
            while (!stopping) {
                read(consumer);
            }
        } catch (WakeupException stopped) {
            // closed by the block
        } finally {
            left.countDown();
        }
    }

    private static void leave(KafkaConsumer<byte[], byte[]> consumer, CountDownLatch left) {
        stopping = true;
        consumer.wakeup();
        try {
            left.await();
        } catch (InterruptedException ignored) {
            Thread.currentThread().interrupt();
        }
    }

    private static void subscribe(KafkaConsumer<byte[], byte[]> consumer, String topic, boolean classic) {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> given) {
                given.forEach(one -> OWN.add(one.topic() + "/" + one.partition()));
                // With the new protocol the epoch that is told here may be the one before.
                tellOwn(classic ? consumer.groupMetadata().generationId() : -1);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> taken) {
                taken.forEach(one -> OWN.remove(one.topic() + "/" + one.partition()));
                tellOwn(-1);
            }
        };
        if (!topic.startsWith("^")) {
            consumer.subscribe(List.of(topic), listener);
        } else if (classic) {
            consumer.subscribe(Pattern.compile(topic), listener);
        } else {
            consumer.subscribe(new SubscriptionPattern(topic.substring(1)), listener);
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException lost) {
            return; // somebody else has the partitions now, and reads them again
        }
        for (ConsumerRecord<byte[], byte[]> record : records) {
            ObjectNode line = JSON.createObjectNode();
            line.putArray("read").add(record.topic()).add(record.partition()).add(record.offset());
            System.out.println(line);
        }
    }

    private static void tellOwn(int generation) {
        ObjectNode line = JSON.createObjectNode();
        ArrayNode rows = line.putArray("assigned");
        for (String one : OWN) {
            int slash = one.lastIndexOf('/');
            rows.addArray().add(one.substring(0, slash)).add(Integer.parseInt(one.substring(slash + 1)));
        }
        if (generation >= 0) {
            line.put("generation", generation);
        }
        System.out.println(line);
    }
}
