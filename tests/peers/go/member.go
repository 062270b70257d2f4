// A member of a group on franz-go, as tests/clients/member.py is one: KIND BOOTSTRAP TOPIC GROUP.
//
// KIND is classic or consumer (KIP-848), a slash, and a balancer. A TOPIC that begins with ^ is a pattern. It tells the
// generation with what it is assigned. A SIGTERM makes it leave.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

type partition struct {
	topic  string
	number int32
}

// own is what this member has now.
type own struct {
	sync.Mutex
	partitions map[partition]bool
}

func (o *own) change(client *kgo.Client, topics map[string][]int32, has bool) {
	o.Lock()
	defer o.Unlock()
	for topic, numbers := range topics {
		for _, number := range numbers {
			if has {
				o.partitions[partition{topic, number}] = true
			} else {
				delete(o.partitions, partition{topic, number})
			}
		}
	}
	rows := [][2]any{}
	for one := range o.partitions {
		rows = append(rows, [2]any{one.topic, one.number})
	}
	sort.Slice(rows, func(i, j int) bool { return fmt.Sprint(rows[i]) < fmt.Sprint(rows[j]) })
	said := map[string]any{"assigned": rows}
	if has {
		_, said["generation"] = client.GroupMetadata()
	}
	tell(said)
}

var telling sync.Mutex

func tell(said map[string]any) {
	line, _ := json.Marshal(said)
	telling.Lock()
	defer telling.Unlock()
	fmt.Println(string(line))
}

func sessionTimeout() time.Duration {
	millis, err := strconv.Atoi(os.Getenv("DRAY_TEST_SESSION_MS"))
	if err != nil {
		millis = 6000
	}
	return time.Duration(millis) * time.Millisecond
}

func main() {
	protocol, balancer, _ := strings.Cut(os.Args[1], "/")
	bootstrap, topic, group := os.Args[2], os.Args[3], os.Args[4]
	mine := &own{partitions: map[partition]bool{}}
	gained := func(_ context.Context, client *kgo.Client, topics map[string][]int32) { mine.change(client, topics, true) }
	lost := func(_ context.Context, client *kgo.Client, topics map[string][]int32) { mine.change(client, topics, false) }
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(balancers[balancer]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(sessionTimeout()),
		kgo.HeartbeatInterval(sessionTimeout() / 8),
		kgo.MetadataMinAge(200 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.OnPartitionsAssigned(gained),
		kgo.OnPartitionsRevoked(lost),
		kgo.OnPartitionsLost(lost),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if strings.HasPrefix(topic, "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stopping, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	for stopping.Err() == nil {
		read(stopping, client)
	}
	client.AllowRebalance()
	client.LeaveGroup()
	client.Close()
}

// read takes some records, commits them, and only then lets others have their partitions.
func read(stopping context.Context, client *kgo.Client) {
	ctx, cancel := context.WithTimeout(stopping, 200*time.Millisecond)
	defer cancel()
	records := client.PollRecords(ctx, 10).Records()
	defer client.AllowRebalance()
	if len(records) == 0 || client.CommitRecords(stopping, records...) != nil {
		return // somebody else has the partitions now, and reads them again
	}
	for _, one := range records {
		tell(map[string]any{"read": []any{one.Topic, one.Partition, one.Offset}})
	}
}
