import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Counts words, as the first page of Kafka Streams does, in all and by year.
 *
 * <p>Usage: WordCount BOOTSTRAP APPLICATION INPUT OUTPUT [key=value ...]
 *
 * <p>It runs until it is killed, or until it fails: then it ends with 1, and the last line is why.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        for (int n = 4; n < arguments.length; n++) {
            String[] pair = arguments[n].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        var strings = Produced.with(Serdes.String(), Serdes.String());
        KGroupedStream<String, String> words = builder.<String, String>stream(arguments[2])
                .flatMapValues(line -> List.of(line.toLowerCase().split("\\W+")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()));
        words.count(Materialized.as("counts"))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(arguments[3], strings);
        words.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofDays(365)))
                .count()
                .toStream()
                .map((word, count) -> KeyValue.pair(word.key(), Long.toString(count)))
                .to(arguments[3] + "-by-year", strings);

        AtomicReference<Throwable> failed = new AtomicReference<>();
        CountDownLatch ended = new CountDownLatch(1);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setUncaughtExceptionHandler(error -> {
                failed.set(error);
                ended.countDown();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
            streams.start();
            ended.await();
        }
        for (Throwable cause = failed.get(); cause != null; cause = cause.getCause()) {
            System.out.println(cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        Runtime.getRuntime().halt(1);
    }
}
