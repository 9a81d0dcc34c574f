package kafka

import (
	"context"
	"strconv"
	"strings"
	"sync"

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

// topicFill is what the settings of a topic say about what may fill it.
type topicFill struct {
	key      []byte // of phantoms; nil: they need none
	maxBytes int    // largest batch
	deletes  bool   // records can be deleted from its head
	keeps    bool   // they cannot; neither of both: not known
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
	fill := &topicFill{key: []byte(phantomKey), maxBytes: defaultMaxBytes}
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
