package acceptance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/batch"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestJoinedClients: clients of all families live at a site that is joined, through a
// failover to it, the failback, and another failover. Members of groups read each record
// once and in order; producers are refused as long as we lead, and the same ones are heard
// after the stop; new producers lose nothing though the source has used their ids (C3.1);
// and a group that moves along with the topic goes on where it was.
func TestJoinedClients(t *testing.T) {
	_, a := sites(t) // of a version that can be joined
	audience := invite(t)
	for n, version := range joinedVersions {
		t.Run(version, func(t *testing.T) {
			b := joinable(t, version)
			first := int32(160 + 10*n)
			v := &voyage{t: t, topic: "crowd-" + version[:1], parts: 3, groups: 20 * time.Second, us: map[*kafkatest.Cluster]*member{
				a: {t: t, k: a, first: first}, b: {t: t, k: b, first: first},
			}}
			a.CreateTopic(t, v.topic, v.parts, 3, nil)
			note(t, a, v.topic, "first", sized(200, 2000), 0, 1, 2)
			v.useIDs(a, b)
			(&visit{voyage: v, a: a, b: b, mover: map[int32][]told{}}).run(audience)
			for _, us := range v.us {
				us.away()
			}
		})
	}
}

// visit is a voyage with clients.
type visit struct {
	*voyage
	a, b  *kafkatest.Cluster
	mover map[int32][]told // what a group has read that moves along
}

func (v *visit) run(audience *audience) {
	there := v.sail(v.topic+"-there", v.a, v.b)
	readers := gather(v.t, v.b, audience, v.topic, v.topic+"-")
	writers := hope(v.t, v.b, v.topic, v.parts)
	v.move(v.a, 300)
	shares := v.sharer()
	readers.hear("while we lead")
	writers.areRefused()
	if long() {
		readers.each((*listener).leave)
		note(v.t, v.a, v.topic, "meanwhile", 500, 0, 1, 2)
		readers.each((*listener).again)
		readers.hear("after they were away")
		readers.each(func(l *listener) { l.die(v.b, v.topic) })
	}
	v.stopUnderLoad(there)
	if long() {
		readers.each((*listener).again)
	}
	writers.areTaken()
	v.newcomers()
	v.move(v.b, v.left(v.b))
	readers.hear("after the failover")
	if shares != nil {
		shares.everything("after the failover", standing(v.t, v.b, v.topic, v.parts))
	}

	writers.rest(true)
	back := v.sail(v.topic+"-back", v.b, v.a)
	note(v.t, v.b, v.topic, "on the way back", 50, 0, 1, 2)
	back.land(v.topic, false)
	note(v.t, v.a, v.topic, "at home", 50, 0, 1, 2)
	v.move(v.a, v.left(v.a))

	there = v.sail(v.topic+"-there", v.a, v.b)
	readers.hear("while we lead again")
	writers.rest(false)
	writers.areRefused()
	v.stopUnderLoad(there)
	writers.areTaken()
	readers.hear("after the second failover")
	writers.rest(true)

	truth := standing(v.t, v.b, v.topic, v.parts)
	readers.hear("at the end")
	readers.heard(truth)
	if shares != nil {
		shares.everything("at the end", truth)
	}
	writers.kept(truth)
	for p, want := range truth {
		if diff := parts(want[:len(v.mover[p])], v.mover[p]); diff != "" {
			v.t.Errorf("the group that moves: partition %d: %s", p, diff)
		}
	}
}

// sharer is a member of a share group at the site that is joined, where there are such groups.
func (v *visit) sharer() *listener {
	if strings.HasPrefix(v.b.Version(), "3.") {
		return nil
	}
	return sharer(v.t, v.b, v.topic, v.topic+"-shares")
}

// stopUnderLoad fails over while the source is written to. What has not come over is lost.
func (v *visit) stopUnderLoad(l *leg) {
	v.t.Helper()
	load := newBackground(v.t)
	load.writes(v.a, v.topic, v.parts, new(pulse))
	moving(v.t, v.b, v.topic, v.b.Ends(v.t.Context(), v.t, v.topic))
	began := time.Now()
	l.land(v.topic, true)
	v.t.Logf("stopped under load in %v", time.Since(began).Round(time.Millisecond))
	load.end()
}

// move has a member of the group that moves along read n records.
func (v *visit) move(c *kafkatest.Cluster, n int) {
	v.t.Helper()
	for _, r := range consume(v.t, c, v.topic+"-moves", v.topic, n) {
		v.mover[r.Partition] = append(v.mover[r.Partition], told{r.Offset, r.Value})
	}
}

// left is how many records there are that the group that moves has not read.
func (v *visit) left(c *kafkatest.Cluster) (n int) {
	for p, end := range c.Ends(v.t.Context(), v.t, v.topic) {
		n += int(end) - len(v.mover[int32(p)])
	}
	return n
}

// useIDs has the source's partition 0 hold records of producers with the ids that each of
// the destination's brokers is about to hand out.
func (v *voyage) useIDs(src, dst *kafkatest.Cluster) {
	v.t.Helper()
	cl, at := src.Client(v.t, kgo.MaxVersions(kversion.V3_9_0())), int32(leaders(v.t, src, v.topic)[0])
	asks := dst.Client(v.t)
	for n := range dst.Nodes() {
		var id int64
		kafkatest.Eventually(v.t, time.Minute, func(ctx context.Context) error { // a block may be on its way
			req := kmsg.NewPtrInitProducerIDRequest()
			req.ProducerID, req.ProducerEpoch = -1, -1
			resp, err := asks.Broker(n+1).RetriableRequest(ctx, req)
			if err != nil {
				return err
			}
			id = resp.(*kmsg.InitProducerIDResponse).ProducerID
			return kerr.ErrorForCode(resp.(*kmsg.InitProducerIDResponse).ErrorCode)
		})
		for next := id + 1; next <= id+30; next++ {
			b := batch.Spec{Producer: &batch.Producer{ID: next}, Records: []batch.Record{{Timestamp: 1_700_000_000_000, Value: fmt.Append(nil, "of producer ", next)}}}
			_, err := produceBatchAt(v.t.Context(), cl, at, cluster.Partition{Topic: v.topic}, b)
			if err != nil && !errors.Is(err, kerr.OutOfOrderSequenceNumber) { // that id has records there already
				v.t.Fatal(err)
			}
		}
	}
}

// newcomers are 20 new producers, each of which is told the truth of where it has written.
func (v *visit) newcomers() {
	v.t.Helper()
	end := v.b.Ends(v.t.Context(), v.t, v.topic)[0]
	wrote := map[told]bool{}
	for n := range 20 {
		cl := v.b.Client(v.t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range 3 {
			r := &kgo.Record{Topic: v.topic, Value: fmt.Append(nil, "of newcomer ", n, " ", i)}
			if err := cl.ProduceSync(timeout(v.t, time.Minute), r).FirstErr(); err != nil {
				v.t.Fatal(err)
			}
			if r.Offset < end {
				v.t.Errorf("newcomer %d: a record is said to stand at %d, the log ended at %d", n, r.Offset, end)
			}
			wrote[told{r.Offset, string(r.Value)}] = true
		}
		cl.Close()
	}
	for _, r := range standing(v.t, v.b, v.topic, v.parts)[0] {
		delete(wrote, r)
	}
	if len(wrote) > 0 {
		v.t.Errorf("records of new producers are not there: %v", wrote)
	}
}
