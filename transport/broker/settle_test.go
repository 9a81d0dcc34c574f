package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// TestSettled: clients of a new leader wait until it knows its log, and no longer than that
// may take.
func TestSettled(t *testing.T) {
	p := cluster.Partition{Topic: "led"}
	partition := func() *lead.Partition {
		return lead.New(lead.Config{Topic: cluster.TopicID{1}, Partition: p, Epoch: 4, Quorum: 1, Followers: []int32{1}})
	}
	heard := func(led *lead.Partition) {
		led.Fetch(lead.Fetch{Replica: 1, CurrentEpoch: 4, Offset: 0, LastEpoch: -1, MaxBytes: 1, Now: time.Now()})
	}
	for _, tt := range []struct {
		name          string
		led           bool
		soon, elected bool
		after         time.Duration // when it knows its log; 0 never
		want          time.Duration
	}{
		{"somebody else's", false, false, false, 0, 0},
		{"we may be elected, and are not", false, true, false, 0, settlingSoon},
		{"elected, and never more", false, true, true, 0, settlingFor},
		{"elected, and its log is found", false, true, true, 300 * time.Millisecond, 300 * time.Millisecond},
		{"led, and its followers say nothing", true, true, true, 0, settlingFor},
		{"led, and they do", true, true, true, 60 * time.Millisecond, 60 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(ServerConfig{}, func() Self { return Self{} }, nil, nil)
				s.coming = func(k fetchKey) (bool, bool) { return tt.soon && k.name == p.Topic, tt.elected }
				led := partition()
				if tt.led {
					s.led.add(led)
				}
				if tt.after > 0 {
					go func() {
						time.Sleep(tt.after - time.Millisecond)
						heard(led)
						s.led.add(led)
					}()
				}
				began := time.Now()
				s.settled(t.Context(), []cluster.Partition{p})
				if took := time.Since(began); took < tt.want || took > tt.want+2*comingLook {
					t.Errorf("waited for %v, want %v", took, tt.want)
				}
				s.led.add(led)
				if began = time.Now(); tt.soon {
					s.begun(t.Context(), []wanted{{fetchKey: fetchKey{topic: cluster.TopicID{1}}}}) // which we lead
				}
				s.begun(t.Context(), []wanted{{fetchKey: fetchKey{name: p.Topic, partition: 1}}})
				if took, want := time.Since(began), min(tt.want, settlingFor); tt.after == 0 && (took < want || took > want+2*comingLook) {
					t.Errorf("a fetch of what we do not lead waited for %v, want %v", took, want)
				}
				time.Sleep(time.Second)
			})
		})
	}
}
