package mirror_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
)

// stamping is a destination that writes its own epochs where its map says so.
type stamping struct {
	*hooked
	stamps map[string]bool
}

func (s stamping) Stamps(p cluster.Partition) (stamps, known bool) {
	stamps, known = s.stamps[p.Topic]
	return stamps, known
}

// TestStatusShowsEpochs: whose leader epochs a log gets is told where it can be the source's.
func TestStatusShowsEpochs(t *testing.T) {
	keeps := func() *hooked {
		return &hooked{mock: newMock("B"), traits: fetcher.Traits{KeepsEpochs: true}}
	}
	topics := []string{"kept", "own", "unknown"}
	for name, c := range map[string]struct {
		destination mirror.Destination
		want        []mirror.Epochs
		stamped     int
	}{
		"never the source's":  {&hooked{mock: newMock("B")}, []mirror.Epochs{"", "", ""}, 0},
		"always the source's": {keeps(), []mirror.Epochs{"source", "source", "source"}, 0},
		"some":                {stamping{keeps(), map[string]bool{"kept": false, "own": true}}, []mirror.Epochs{"source", "destination", ""}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			source := &hooked{mock: newMock("A", topics...)}
			inBubble(t, source, c.destination, everything(), func(t *testing.T, m *mirror.Mirror) {
				pass(time.Second)
				for i, topic := range topics {
					s := stateOf(t, m, topic)
					if s.Epochs != c.want[i] {
						t.Errorf("%s: epochs of %q, want %q", topic, s.Epochs, c.want[i])
					}
					b, err := json.Marshal(s)
					if told := strings.Contains(string(b), `"epochs":"`+string(c.want[i])+`"`); err != nil || told != (c.want[i] != "") {
						t.Errorf("%s, %v", b, err)
					}
				}
				if got := m.Status().Stamped; got != c.stamped {
					t.Errorf("%d are counted, want %d", got, c.stamped)
				}
			})
		})
	}
}
