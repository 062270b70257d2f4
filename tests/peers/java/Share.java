import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a group come one by one, share the partitions, read, and go one by one.
 *
 * <p>Usage: Share BOOTSTRAP GROUP TOPIC PARTITIONS RECORDS MEMBERS [key=value ...]; a topic that begins with ~ is a
 * pattern.
 *
 * <p>A line out whenever the partitions are shared evenly: {"members", "owned": [["topic-0", ...], ...]}; at last what
 * was read: {"read": ["topic-0@5", ...]}. Ends with 1 if any of it takes more than a minute.
 */
public final class Share {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PATIENCE_NS = Duration.ofSeconds(60).toNanos();

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        for (int i = 6; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        int partitions = Integer.parseInt(arguments[3]);
        int records = Integer.parseInt(arguments[4]);
        ConcurrentLinkedQueue<String> read = new ConcurrentLinkedQueue<>();
        List<Member> members = new ArrayList<>();
        for (int count = Integer.parseInt(arguments[5]); count > 0; count--) {
            members.add(new Member(settings, arguments[2], read));
            share(members, partitions);
        }
        await(members, () -> read.size() >= records, "not everything was read");
        while (members.size() > 1) {
            members.remove(0).finish();
            share(members, partitions);
        }
        members.get(0).finish();
        ObjectNode line = JSON.createObjectNode();
        ArrayNode rows = line.putArray("read");
        read.forEach(rows::add);
        System.out.println(line);
        System.exit(0);
    }

    private static void share(List<Member> members, int partitions) throws InterruptedException {
        await(members, () -> isShared(members, partitions), "they do not share");
        ObjectNode line = JSON.createObjectNode().put("members", members.size());
        ArrayNode owned = line.putArray("owned");
        for (Member member : members) {
            ArrayNode mine = owned.addArray();
            member.owned.forEach(mine::add);
        }
        System.out.println(line);
    }

    private static boolean isShared(List<Member> members, int partitions) {
        Set<String> all = new TreeSet<>();
        int sum = 0;
        int most = 0;
        int least = Integer.MAX_VALUE;
        for (Member member : members) {
            Set<String> owned = member.owned;
            all.addAll(owned);
            sum += owned.size();
            most = Math.max(most, owned.size());
            least = Math.min(least, owned.size());
        }
        return sum == partitions && all.size() == partitions && most - least <= 1;
    }

    private interface Condition {
        boolean holds();
    }

    private static void await(List<Member> members, Condition condition, String why) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE_NS;
        while (!condition.holds()) {
            for (Member member : members) {
                if (member.failure != null || System.nanoTime() > deadline) {
                    System.err.println(why + ": " + members.stream().map(one -> one.owned).toList() + member.failure);
                    System.exit(1);
                }
            }
            Thread.sleep(20);
        }
    }

    private static final class Member extends Thread {
        volatile Set<String> owned = Set.of();
        volatile Throwable failure;
        private volatile boolean stopping;
        private final Properties settings;
        private final String topic;
        private final ConcurrentLinkedQueue<String> read;

        Member(Properties settings, String topic, ConcurrentLinkedQueue<String> read) {
            this.settings = settings;
            this.topic = topic;
            this.read = read;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
                if (topic.startsWith("~")) {
                    consumer.subscribe(new SubscriptionPattern(topic.substring(1)));
                } else {
                    consumer.subscribe(List.of(topic));
                }
                while (!stopping) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                        read.add(record.topic() + "-" + record.partition() + "@" + record.offset());
                    }
                    consumer.commitSync();
                    Set<String> now = new TreeSet<>();
                    for (TopicPartition one : consumer.assignment()) {
                        now.add(one.toString());
                    }
                    owned = now;
                }
            } catch (RuntimeException failed) {
                failure = failed;
            }
        }

        void finish() throws InterruptedException {
            stopping = true;
            join();
        }
    }
}
