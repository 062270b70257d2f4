import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/**
 * What Kafka's admin client can ask, each once, on its defaults.
 *
 * <p>Usage: AskEverything BOOTSTRAP
 *
 * <p>One object out: of each call "done", or the class and the message of its exception, and "seconds" if it took as
 * long as a client that goes on trying.
 */
public final class AskEverything {
    private static final int PATIENCE_S = 90;
    private static final int SLOW_S = 50;
    private static final String TOPIC = "everything";
    private static final String GROUP = "everything";
    private final ObjectNode told = new ObjectMapper().createObjectNode();

    private interface Call {
        Future<?> ask() throws Exception;
    }

    public static void main(String[] arguments) {
        AskEverything asking = new AskEverything();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            asking.topics(admin);
            asking.groups(admin);
            asking.cluster(admin);
            asking.transactions(admin);
            asking.access(admin);
            asking.ask("deleteTopics", () -> admin.deleteTopics(List.of(TOPIC)).all());
        }
        System.out.println(asking.told);
    }

    private void ask(String name, Call call) {
        long begun = System.nanoTime();
        String outcome;
        try {
            call.ask().get(PATIENCE_S, TimeUnit.SECONDS);
            outcome = "done";
        } catch (ExecutionException error) {
            outcome = error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
        } catch (Exception error) {
            outcome = error.getClass().getSimpleName() + ": " + error.getMessage();
        }
        boolean slow = System.nanoTime() - begun > SLOW_S * 1_000_000_000L;
        told.put(name, slow ? outcome + " (after retries)" : outcome);
    }

    private void topics(Admin admin) {
        TopicPartition first = new TopicPartition(TOPIC, 0);
        ConfigResource config = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "86400000"), AlterConfigOp.OpType.SET);
        ask("createTopics", () -> admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all());
        ask("listTopics", () -> admin.listTopics().listings());
        ask("describeTopics", () -> admin.describeTopics(List.of(TOPIC)).allTopicNames());
        ask("createPartitions", () -> admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(2))).all());
        ask("describeConfigs", () -> admin.describeConfigs(List.of(config)).all());
        ask("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(config, List.of(change))).all());
        ask("listConfigResources", () -> admin.listConfigResources().all());
        ask("listOffsets", () -> admin.listOffsets(Map.of(first, OffsetSpec.latest())).all());
        ask("deleteRecords", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(-1))).all());
        ask("describeProducers", () -> admin.describeProducers(List.of(first)).all());
        ask("describeLogDirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions());
        TopicPartitionReplica replica = new TopicPartitionReplica(TOPIC, 0, 1);
        ask("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(replica)).all());
        ask("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(replica, "/elsewhere")).all());
        ask("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).all());
        Optional<NewPartitionReassignment> moved = Optional.of(new NewPartitionReassignment(List.of(1)));
        ask("alterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(first, moved)).all());
        ask("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments());
    }

    private void groups(Admin admin) {
        TopicPartition first = new TopicPartition(TOPIC, 0);
        TopicPartition second = new TopicPartition(TOPIC, 1);
        Map<TopicPartition, OffsetAndMetadata> offsets =
                Map.of(first, new OffsetAndMetadata(0), second, new OffsetAndMetadata(0));
        ListConsumerGroupOffsetsSpec all = new ListConsumerGroupOffsetsSpec();
        ask("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets(GROUP, offsets).all());
        ask("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(Map.of(GROUP, all)).all());
        ask("listGroups", () -> admin.listGroups().all());
        ask("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of(GROUP)).all());
        ask("describeClassicGroups", () -> admin.describeClassicGroups(List.of(GROUP)).all());
        ask("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets(GROUP, Set.of(first)).all());
        var nobody = new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("nobody")));
        ask("removeMembersFromConsumerGroup",
                () -> admin.removeMembersFromConsumerGroup(GROUP, nobody).all());
        ask("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of(GROUP)).all());
        ask("describeShareGroups", () -> admin.describeShareGroups(List.of(GROUP)).all());
        ask("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of(GROUP)).all());
    }

    private void cluster(Admin admin) {
        ask("describeCluster", () -> admin.describeCluster().nodes());
        ask("describeFeatures", () -> admin.describeFeatures().featureMetadata());
        FeatureUpdate update = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE);
        ask("updateFeatures",
                () -> admin.updateFeatures(Map.of("group.version", update), new UpdateFeaturesOptions()).all());
        ask("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo());
        ask("unregisterBroker", () -> admin.unregisterBroker(7).all());
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "anna"));
        var quota = new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6)));
        ask("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
        ask("alterClientQuotas", () -> admin.alterClientQuotas(List.of(quota)).all());
    }

    private void transactions(Admin admin) {
        TopicPartition first = new TopicPartition(TOPIC, 0);
        ask("listTransactions", () -> admin.listTransactions().all());
        ask("describeTransactions", () -> admin.describeTransactions(List.of("none")).all());
        ask("fenceProducers", () -> admin.fenceProducers(List.of("none")).all());
        var hanging = new AbortTransactionSpec(first, 1, (short) 0, 0);
        ask("abortTransaction", () -> admin.abortTransaction(hanging).all());
    }

    private void access(Admin admin) {
        var pattern = new ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL);
        var entry = new AccessControlEntry("User:anna", "*", AclOperation.READ, AclPermissionType.ALLOW);
        ask("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values());
        ask("createAcls", () -> admin.createAcls(List.of(new AclBinding(pattern, entry))).all());
        ask("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
        var password = new UserScramCredentialUpsertion("anna", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "x");
        ask("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all());
        ask("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(password)).all());
        ask("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens());
        ask("createDelegationToken", () -> admin.createDelegationToken().delegationToken());
    }
}
