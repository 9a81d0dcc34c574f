package kafka_test

import (
	"context"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/store/kafka"
	"github.com/twmb/franz-go/pkg/kfake"
)

// A store lies in the destination cluster. Two workers that save the same record see
// which of them was first.
func Example() {
	broker, err := kfake.NewCluster()
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	var workers [2]*kafka.Store
	for i := range workers {
		if workers[i], err = kafka.New(kafka.Config{Bootstrap: broker.ListenAddrs()}); err != nil {
			panic(err)
		}
		defer workers[i].Close()
	}
	record := coordinator.Record{
		Partition: cluster.Partition{Topic: "orders"}, State: coordinator.StateMirroring, Previous: coordinator.StateLogAlignment,
		Desired: coordinator.WantMirroring, OwnerEpoch: 1, StateEpoch: 1, Cut: -1,
	}
	for i, w := range workers {
		fmt.Println("worker", i, w.Save(context.Background(), "a-to-b", []coordinator.Record{record})[0])
	}
	records, err := workers[1].Load(context.Background(), "a-to-b")
	fmt.Println(len(records), err)
	// Output:
	// worker 0 <nil>
	// worker 1 record was written by another
	// 1 <nil>
}
