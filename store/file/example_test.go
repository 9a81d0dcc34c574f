package file_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/store/file"
)

// A mirror's state outlives the process that made it. A host hands the store to
// mirror.New as Options.Store and lets the mirror write; here it is done by hand.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "mirror")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store, err := file.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	errs := store.Save(ctx, "a-to-b", []coordinator.Record{{
		Partition: cluster.Partition{Topic: "orders"}, State: coordinator.StateMirroring, Previous: coordinator.StateLogAlignment,
		Desired: coordinator.WantMirroring, OwnerEpoch: 1, StateEpoch: 1, Cut: -1,
	}})
	fmt.Println("saved:", errs[0])
	store.Close()

	store, err = file.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	records, err := store.Load(ctx, "a-to-b")
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range records {
		fmt.Println(r.Partition, r.State)
	}
	// Output:
	// saved: <nil>
	// orders-0 MIRRORING
}
