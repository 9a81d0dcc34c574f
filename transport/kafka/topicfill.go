package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys of records that only fill, where they need one: compacted topics refuse records
// without. No application may use them: the cleaner takes records of one key for each
// other's.
const (
	phantomKey = "\x00\xffmirror"
	fillerKey  = "__mirror"
)

// fillTrust is how long the settings of a topic are taken for what they were: others change
// them too, and our own changes count at once.
const fillTrust = 30 * time.Second

// topicFill is what the settings of a topic say about what may fill it.
type topicFill struct {
	at       time.Time // when they were asked for
	key      []byte    // of phantoms; nil: they need none
	maxBytes int       // largest batch
	deletes  bool      // records can be deleted from its head
	keeps    bool      // they cannot; neither of both: not known
}

// phantoms is how many go into one batch.
func (f *topicFill) phantoms() int64 {
	const least = 11 // bytes of a record without a key
	fit := (f.maxBytes - batch.HeaderSize) / (least + len(f.key))
	return int64(max(1, min(phantomRecords, fit)))
}

// fillers is how many go into one batch, which is compressed: 2 bytes each at most.
func (f *topicFill) fillers() int64 {
	return int64(max(1, min(fillerRecords, (f.maxBytes-batch.HeaderSize)/2)))
}

// defaultMaxBytes is Kafka's default of message.max.bytes.
const defaultMaxBytes = 1048588

// topicFill reads the settings. Where they cannot be read what fills carries a key,
// which every topic takes.
func (c *Cluster) topicFill(ctx context.Context, topic string) *topicFill {
	fill := &topicFill{at: time.Now(), key: []byte(phantomKey), maxBytes: defaultMaxBytes}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout/2)
	defer cancel()
	policy, err := c.effectiveConfig(ctx, kmsg.ConfigResourceTypeTopic, topic, "cleanup.policy")
	if err != nil {
		c.cfg.Logger.DebugContext(ctx, "cleanup.policy cannot be read, fillers carry a key", "topic", topic, "error", err)
		return fill
	}
	if !strings.Contains(policy, "compact") {
		fill.key = nil
	}
	fill.deletes = strings.Contains(policy, "delete")
	fill.keeps = !fill.deletes
	if value, err := c.effectiveConfig(ctx, kmsg.ConfigResourceTypeTopic, topic, "max.message.bytes"); err == nil {
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			fill.maxBytes = n
		}
	}
	return fill
}

// forgetFill has the settings of a topic read again before anything more fills it.
func (c *Cluster) forgetFill(topic string) {
	c.mu.Lock()
	var lanes []*lane
	for p, l := range c.lanes {
		if p.Topic == topic {
			lanes = append(lanes, l)
		}
	}
	c.mu.Unlock()
	for _, l := range lanes {
		l.mu.Lock()
		l.fill = nil
		l.mu.Unlock()
	}
}

// misfilled says it where the broker refuses what was made for a topic that is not compacted: its
// settings have changed since. They are read anew when the stretch begins again.
func (l *lane) misfilled(r *run, err error) error {
	if r.prep == nil || l.fill == nil || l.fill.key != nil || !errors.Is(err, invalidRecord) {
		return err
	}
	return fmt.Errorf("%w: the topic's cleanup.policy has changed: %v", cluster.ErrUnavailable, err) // not refused for good
}

// fillers keeps the last filler made: long fills want the same one again and again.
type fillers struct {
	mu   sync.Mutex
	size int
	last *batch.Filler
}

func (f *fillers) of(n int) *batch.Filler {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size != n {
		f.last, f.size = batch.NewFiller(n, batch.Zstd, []byte(fillerKey)), n
	}
	return f.last
}
