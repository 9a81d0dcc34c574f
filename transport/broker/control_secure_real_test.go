package broker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	segplain "github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestRealControlPermissions: what membership needs, and Create and AlterConfigs of
// topics, are enough to create and hand back; adopting needs Describe, and
// what topics leave to the cluster's defaults DescribeConfigs. Errors say so.
func TestRealControlPermissions(t *testing.T) {
	t.Parallel()
	k := locked(t)
	admin := k.Client(t)
	allow(t, admin, "mirror", "", kmsg.ACLOperationDescribe, kmsg.ACLOperationAlter, kmsg.ACLOperationClusterAction)
	cfg := Config{IDs: IDs{100, 100}, Identities: new(MemoryIdentities), SASL: segplain.Mechanism{Username: "mirror", Password: "m"},
		Ours: func(topic string, _ cluster.TopicID, _ int32) bool { return topic != "theirs" }}
	l := &led{k: k, cfg: cfg, store: new(MemoryOverrides)}
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { // the broker hears of ACLs a little later
		us := join(t, k, cfg)
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		joined := make(chan error, 1)
		go func() { joined <- us.WaitJoined(bounded) }()
		select {
		case err := <-us.done:
			return err
		case err := <-joined:
			l.us, l.control = us, newControl(us.Membership, l.store)
			return err
		}
	})
	create := func(ctx context.Context, name string, replicas int16) error {
		return l.control.create(ctx, []cluster.NewTopic{{Name: name, Partitions: 3, ReplicationFactor: replicas}})[0]
	}
	seesTransactions(t, l, admin)
	eventually := func(what string, do func(context.Context) error) {
		t.Helper()
		if err := do(within(t, time.Minute)); !errors.Is(err, cluster.ErrAuthorization) {
			t.Errorf("%s before it is allowed: %v", what, err)
		}
		op := map[string]kmsg.ACLOperation{"Create": kmsg.ACLOperationCreate, "AlterConfigs": kmsg.ACLOperationAlterConfigs,
			"Describe": kmsg.ACLOperationDescribe, "DescribeConfigs": kmsg.ACLOperationDescribeConfigs}[what]
		allow(t, admin, "mirror", "*", op)
		kafkatest.Eventually(t, time.Minute, do)
	}
	eventually("Create", func(ctx context.Context) error { return create(ctx, "mirrored-a", 1) })
	if own, _ := l.store.Load(t.Context(), "mirrored-a"); len(own) != 1 {
		t.Error("own settings are not stored")
	}
	eventually("DescribeConfigs", func(ctx context.Context) error { return create(ctx, "mirrored-b", -1) })
	ids := l.mirrored("mirrored-")
	ctx := within(t, time.Minute)
	none(t, "narrow", l.control.narrow(ctx, ids))
	none(t, "raise", l.raise(ctx, map[metalog.PartitionID]int32{ids[0]: 7}))
	eventually("AlterConfigs", func(ctx context.Context) error { return failedWith(l.control.handBack(ctx, ids, l.all)) })
	eventually("Describe", func(ctx context.Context) error { return failedWith(l.control.adopt(ctx, ids)) })
	none(t, "narrow", l.control.narrow(ctx, ids))
	none(t, "handBack", l.control.handBack(ctx, ids, l.all))
	none(t, "writing", write(ctx, admin, l.image(), ids))
}

// seesTransactions: without the permission nobody can tell whose transactions are open, and
// it says so.
func seesTransactions(t *testing.T, l *led, admin *kgo.Client) {
	t.Helper()
	if err := l.us.seesTransactions(within(t, time.Minute)); !errors.Is(err, cluster.ErrAuthorization) || !strings.Contains(err.Error(), "TransactionalId") {
		t.Errorf("without permission: %v", err)
	}
	one := kmsg.NewCreateACLsRequestCreation()
	one.ResourceType, one.ResourceName, one.ResourcePatternType = kmsg.ACLResourceTypeTransactionalId, "*", kmsg.ACLResourcePatternTypeLiteral
	one.Principal, one.Host, one.Operation, one.PermissionType = "User:mirror", "*", kmsg.ACLOperationDescribe, kmsg.ACLPermissionTypeAllow
	req := kmsg.NewPtrCreateACLsRequest()
	req.Creations = append(req.Creations, one)
	if _, err := req.RequestWith(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, time.Minute, l.us.seesTransactions)
}
