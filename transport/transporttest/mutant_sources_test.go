package transporttest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/fetcher"
	"github.com/clustermirror/mirror/topics"
	"github.com/clustermirror/mirror/transport/memory"
)

// TestMutantSourcesAreCaught is TestMutantsAreCaught for sources.
func TestMutantSourcesAreCaught(t *testing.T) {
	none := cluster.EpochEnd{Epoch: -1, EndOffset: -1}
	request := func(change func(*fetcher.FetchRequest)) func(fetcher.Session) fetcher.Session {
		return func(s fetcher.Session) fetcher.Session { return &asking{Session: s, request: change} }
	}
	answer := func(change func(*fetcher.FetchResponse)) func(fetcher.Session) fetcher.Session {
		return func(s fetcher.Session) fetcher.Session { return &asking{Session: s, answer: change} }
	}
	wants := func(change func(*fetcher.Want)) func(fetcher.Session) fetcher.Session {
		return request(func(r *fetcher.FetchRequest) {
			r.Changed = slices.Clone(r.Changed)
			for i := range r.Changed {
				change(&r.Changed[i])
			}
		})
	}
	for name, m := range map[string]struct {
		by   string
		open func(fetcher.Session) fetcher.Session
	}{
		"does not wait":                  {"fetch is incremental and waits", request(func(r *fetcher.FetchRequest) { r.MaxWait = 0 })},
		"forgets nothing":                {"fetch is incremental and waits", request(func(r *fetcher.FetchRequest) { r.Forgotten = nil })},
		"knows no change":                {"fetch is incremental and waits", newSilent},
		"sleeps through a record":        {"fetch is incremental and waits", newSlow},
		"Close does not wake":            {"fetch gives way to Close and ctx", func(s fetcher.Session) fetcher.Session { return &unclosed{s} }},
		"ctx does not wake":              {"fetch gives way to Close and ctx", func(s fetcher.Session) fetcher.Session { return &undone{s} }},
		"keeps its bytes":                {"fetch gives what was produced", newKeeping},
		"loses a batch":                  {"fetch gives what was produced", answer(func(r *fetcher.FetchResponse) { r.Partitions[0].Records = r.Partitions[0].Records[90:] })},
		"shows what is open":             {"committed fetches", request(func(r *fetcher.FetchRequest) { r.Committed = false })},
		"does not say what was aborted":  {"committed fetches", answer(func(r *fetcher.FetchResponse) { r.Partitions[0].Aborted = nil })},
		"forgets where one has begun":    {"committed fetches", answer(forgetBeginnings)},
		"has no limits":                  {"fetch keeps its limits", wants(func(w *fetcher.Want) { w.MaxBytes = 1 << 20 })},
		"ignores offsets out of range":   {"fetch refuses what it has to", wants(func(w *fetcher.Want) { w.Offset = min(w.Offset, 6) })},
		"ignores topic ids":              {"fetch refuses what it has to", wants(func(w *fetcher.Want) { w.TopicID = cluster.TopicID{} })},
		"ignores leader epochs":          {"fetch refuses what it has to", wants(func(w *fetcher.Want) { w.LeaderEpoch = cluster.NoEpoch })},
		"one error spoils all":           {"fetch refuses what it has to", answer(spoilAll)},
		"does not see that logs parted":  {"fetch at a leader that was", answer(func(r *fetcher.FetchResponse) { r.Partitions[0].Diverging = none })},
		"has no error of a moved leader": {"fetch at a leader that was", answer(func(r *fetcher.FetchResponse) { r.Partitions[0].Err = nil })},
	} {
		t.Run(name, func(t *testing.T) {
			caught(t, m.by, func(t testing.TB) End {
				c := memory.New(memory.Options{})
				e := endOf(t, c)
				e.Source = &opening{c.Client("mutant"), m.open}
				return e
			})
		})
	}
	for by, make := range map[string]func(*memory.Client) Source{
		"reading what is committed": func(c *memory.Client) Source { return &uncommitted{c} },
		"ends of epochs":            func(c *memory.Client) Source { return &endless{c} },
		"leaders":                   func(c *memory.Client) Source { return &leading{c} },
		"offsets of the source":     func(c *memory.Client) Source { return &ahead{c} },
		"topic settings":            func(c *memory.Client) Source { return &ahead{c} },
	} {
		t.Run(by, func(t *testing.T) {
			caught(t, by, func(t testing.TB) End {
				c := memory.New(memory.Options{})
				e := endOf(t, c)
				e.Source = make(c.Client("mutant"))
				return e
			})
		})
	}
}

// opening has sessions that do something wrong.
type opening struct {
	*memory.Client
	open func(fetcher.Session) fetcher.Session
}

func (m *opening) Open(ctx context.Context, broker int32) (fetcher.Session, error) {
	s, err := m.Client.Open(ctx, broker)
	if err != nil {
		return nil, err
	}
	return m.open(s), nil
}

// asking changes requests or answers.
type asking struct {
	fetcher.Session
	request func(*fetcher.FetchRequest)
	answer  func(*fetcher.FetchResponse)
}

func (m *asking) Fetch(ctx context.Context, req *fetcher.FetchRequest) (*fetcher.FetchResponse, error) {
	r := *req
	if m.request != nil {
		m.request(&r)
	}
	resp, err := m.Session.Fetch(ctx, &r)
	if err == nil && m.answer != nil && len(resp.Partitions) > 0 {
		m.answer(resp)
	}
	return resp, err
}

// forgetBeginnings leaves out the transactions that began before the answer.
func forgetBeginnings(r *fetcher.FetchResponse) {
	f := &r.Partitions[0]
	if bs := batchesOf(f.Records, 0); len(bs) > 0 {
		f.Aborted = slices.DeleteFunc(f.Aborted, func(a fetcher.AbortedTransaction) bool { return a.First < bs[0].Base })
	}
}

// uncommitted reads what is open as well.
type uncommitted struct{ *memory.Client }

func (m *uncommitted) ReadCommitted(ctx context.Context, p cluster.Partition, offset int64, maxBytes int32) ([]byte, []fetcher.AbortedTransaction, error) {
	b, err := m.Read(ctx, p, offset, maxBytes)
	_, aborted, _ := m.Client.ReadCommitted(ctx, p, offset, maxBytes)
	return b, aborted, err
}

func spoilAll(r *fetcher.FetchResponse) {
	for _, f := range r.Partitions {
		if f.Err != nil {
			for i := range r.Partitions {
				r.Partitions[i].Err = f.Err
			}
		}
	}
}

// newSilent is a session that answers each partition once.
func newSilent(s fetcher.Session) fetcher.Session {
	told := map[cluster.Partition]bool{}
	return &asking{Session: s, answer: func(r *fetcher.FetchResponse) {
		r.Partitions = slices.DeleteFunc(r.Partitions, func(f fetcher.Fetched) bool { return told[f.Partition] })
		for _, f := range r.Partitions {
			told[f.Partition] = true
		}
	}}
}

// newSlow is a session that looks only when the time is over.
func newSlow(s fetcher.Session) fetcher.Session {
	return &asking{Session: s, request: func(r *fetcher.FetchRequest) {
		<-time.After(min(r.MaxWait, 2*time.Second))
		r.MaxWait = 0
	}}
}

// newKeeping is a session that hands out the same memory again and again.
func newKeeping(s fetcher.Session) fetcher.Session {
	var kept []byte
	return &asking{Session: s, answer: func(r *fetcher.FetchResponse) {
		if kept == nil {
			kept = r.Partitions[0].Records
		}
		r.Partitions[0].Records = kept
	}}
}

type unclosed struct{ fetcher.Session }

func (m *unclosed) Fetch(ctx context.Context, req *fetcher.FetchRequest) (*fetcher.FetchResponse, error) {
	if req.MaxWait >= time.Minute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.Session.Fetch(ctx, req)
}

// undone ends with Close only.
type undone struct{ fetcher.Session }

func (m *undone) Fetch(ctx context.Context, req *fetcher.FetchRequest) (*fetcher.FetchResponse, error) {
	return m.Session.Fetch(context.WithoutCancel(ctx), req)
}

// endless has one epoch that ends nowhere.
type endless struct{ *memory.Client }

func (m *endless) EpochEnds(ctx context.Context, queries []fetcher.EpochQuery) ([]fetcher.EpochAnswer, error) {
	out := make([]fetcher.EpochAnswer, len(queries))
	for i, q := range queries {
		out[i].EpochEnd = cluster.EpochEnd{Epoch: q.Epoch, EndOffset: 1 << 40}
	}
	return out, nil
}

// leading leads everything.
type leading struct{ *memory.Client }

func (m *leading) Leaders(ctx context.Context, ps []cluster.Partition, fresh bool) ([]fetcher.LeaderAnswer, error) {
	out, err := m.Client.Leaders(ctx, ps, fresh)
	for i := range out {
		out[i].Err = nil
	}
	return out, err
}

// ahead tells a high watermark that is not reached, and settings nobody has made.
type ahead struct{ *memory.Client }

func (m *ahead) Offsets(ctx context.Context, ps []cluster.Partition) ([]fetcher.OffsetsAnswer, error) {
	out, err := m.Client.Offsets(ctx, ps)
	for i := range out {
		out[i].HighWatermark++
	}
	return out, err
}

func (m *ahead) TopicConfigs(ctx context.Context, names []string) ([]topics.ConfigsAnswer, error) {
	out, err := m.Client.TopicConfigs(ctx, names)
	for i := range out {
		out[i].Configs = append(out[i].Configs, cluster.TopicConfig{Name: "segment.ms", Value: "1"})
	}
	return out, err
}
