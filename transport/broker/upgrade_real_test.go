package broker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/metalog"
)

// TestRealUpgrade: the brokers of a cluster that we are in get a newer release. We remain who we are,
// do not hold up the upgrade of features, and are cordoned as soon as the cluster can.
func TestRealUpgrade(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{Version: "3.9.1", Config: map[string]string{"broker.session.timeout.ms": "4000"}})
	us := join(t, k, Config{IDs: IDs{First: 100, Last: 102}, Identities: new(MemoryIdentities), HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 4 * time.Second})
	if err := us.WaitJoined(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	before := us.Self()
	k.Upgrade(1, "4.4.0")
	if err := us.Cordon(within(t, time.Minute), true); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Cordon, before features are upgraded: %v", err)
	}
	newer := metalog.Feature{Name: metadataVersion, Min: 7, Max: newestLevel}
	image, err := us.log.Wait(within(t, time.Minute), func(i metalog.Image) bool {
		ours, _, ok := us.mine(i)
		theirs, known := i.Broker(1)
		return ok && known && slices.Contains(theirs.Features, newer) && sameSet(ours.Features, theirs.Features)
	})
	if err != nil {
		one, _ := image.Broker(1)
		ours, _ := image.Broker(100)
		t.Fatalf("%v: broker 1 is %+v, we are %+v", err, one, ours)
	}
	k.UpgradeFeatures(within(t, time.Minute), t, "4.4")
	if _, err = us.log.Wait(within(t, time.Minute), func(i metalog.Image) bool {
		b, _, ok := us.mine(i)
		return i.Feature(metadataVersion) == newestLevel && ok && len(b.Cordoned) == 1 && !b.Fenced
	}); err != nil {
		t.Fatal(err)
	}
	if after := us.Self(); after.Broker != before.Broker || after.Epoch != before.Epoch {
		t.Errorf("we were %+v and are %+v", before, after)
	}
	for _, on := range []bool{false, true} {
		if err := us.Cordon(within(t, time.Minute), on); err != nil {
			t.Errorf("Cordon %v: %v", on, err)
		}
	}
	k.CreateTopic(t, "theirs", 6, 1, nil)
	image, err = us.log.Wait(within(t, time.Minute), func(i metalog.Image) bool { _, ok := i.TopicNamed("theirs"); return ok })
	if landed := placedOn(image, 100); err != nil || len(landed) > 0 {
		t.Errorf("placed on us: %v, %v", landed, err)
	}
	if err := us.Leave(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
}
