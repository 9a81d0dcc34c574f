package statuspage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// standing is a mirror that does well.
func standing(name string, at time.Time) mirror.Description {
	states := map[coordinator.State]int{coordinator.StateMirroring: 4}
	return mirror.Description{
		Overview: mirror.Overview{Name: name, SourceID: "A", DestinationID: "B", Running: true, States: states},
		Status:   mirror.Status{Mirror: name, Time: at, Running: true, Topics: 2, Partitions: 4, States: states, Health: "ok", Synced: &at},
	}
}

// broken has a failed partition, one that is behind, and a topic that is refused.
func broken(name string, at time.Time) mirror.Description {
	d := standing(name, at)
	retry, newest := at.Add(4*time.Second), at.Add(-90*time.Second)
	d.States = map[coordinator.State]int{coordinator.StateMirroring: 2, coordinator.StateFailed: 1}
	d.Status.States, d.Status.Health, d.Status.Lag, d.Status.Skipped = d.States, "failed", 1500, 7
	d.Status.Worst = []mirror.PartitionStatus{
		{Partition: cluster.Partition{Topic: "orders", Partition: 1}, State: coordinator.StateFailed, Reason: `no <right> & "so"`, Retriable: true, RetryAt: &retry},
		{Partition: cluster.Partition{Topic: "orders", Partition: 2}, State: coordinator.StateFailed, Reason: "corrupt"},
		{Partition: cluster.Partition{Topic: "orders"}, State: coordinator.StateMirroring, Lag: 1500, NewestRecord: &newest, SourceEnd: 2500, DestinationEnd: 1000},
	}
	d.Status.Refused = map[string]string{"audit": "it has 3 partitions"}
	return d
}

// get asks a board over HTTP.
func get(t *testing.T, b *Board, path string) (int, http.Header, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:8090"
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	return w.Code, w.Header(), w.Body.String()
}

// board shows some mirrors.
func board(err error, all ...mirror.Description) *Board {
	b := New(nil)
	b.sample(all, err, noon)
	return b
}

// TestHealth: it is the worst partition's, with counts of each state (C12.5).
func TestHealth(t *testing.T) {
	stopped, dead, waiting, fresh, slow := standing("off", noon), standing("dead", noon), standing("waits", noon), standing("fresh", noon), standing("slow", noon)
	stopped.Running = false
	dead.Running, dead.Reason = false, "no such file"
	waiting.Status.Standby = true
	fresh.Status.Synced = nil
	slow.Status.Health = "troubled"
	tests := []struct {
		name string
		all  []mirror.Description
		code int
		text string
	}{
		{"nothing", nil, 200, "ok\n"},
		{"well", []mirror.Description{standing("a", noon), standing("b", noon)}, 200, "ok\na: ok, 4 MIRRORING\nb: ok, 4 MIRRORING\n"},
		{"one of them failed", []mirror.Description{standing("a", noon), broken("b", noon)}, 503, "failed\na: ok, 4 MIRRORING\nb: failed, 1 FAILED, 2 MIRRORING\n"},
		{"in trouble", []mirror.Description{slow}, 200, "troubled\nslow: troubled, 4 MIRRORING\n"},
		{"does not run", []mirror.Description{dead}, 503, "failed\ndead: failed, 4 MIRRORING, no such file\n"},
		{"runs elsewhere, or not yet", []mirror.Description{stopped, fresh}, 200, "starting\noff: starting, 4 MIRRORING\nfresh: starting, 4 MIRRORING\n"},
		{"stands by", []mirror.Description{waiting}, 200, "standby\nwaits: standby, 4 MIRRORING\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, _, text := get(t, board(nil, tt.all...), "/healthz")
			if code != tt.code || text != tt.text {
				t.Errorf("%d %q, want %d %q", code, text, tt.code, tt.text)
			}
		})
	}
	if code, _, text := get(t, New(nil), "/healthz"); code != 200 || text != "starting\n" {
		t.Errorf("before the first look: %d %q", code, text)
	}
	b := board(nil, standing("a", noon))
	b.sample(nil, errors.New("the state topic does not answer"), noon)
	if code, _, text := get(t, b, "/healthz"); code != 503 || text != "failed\nthe state topic does not answer\na: ok, 4 MIRRORING\n" {
		t.Errorf("when nobody can be asked: %d %q", code, text)
	}
}

// TestStatus: the document has the mirror's own status, rates, lag in time and events.
func TestStatus(t *testing.T) {
	b := New(nil)
	for i := range int64(3) {
		d := broken("dr", noon.Add(time.Duration(i)*2*time.Second))
		d.Status.Bytes, d.Status.Records = 2_000_000*i*i, 10*i
		b.sample([]mirror.Description{d}, nil, d.Status.Time)
	}
	b.Event("first")
	b.Event("second")
	code, header, text := get(t, b, "/status")
	var s Status
	if err := json.Unmarshal([]byte(text), &s); err != nil || code != 200 || header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d, %v: %s", code, err, text)
	}
	m := s.Mirrors[0]
	if m.Name != "dr" || m.Health != "failed" || s.Health != "failed" || m.Status.Worst[0].Partition.Topic != "orders" || !m.Running {
		t.Errorf("%+v", m)
	}
	if diff := cmp.Diff([]float64{0, 1e6, 3e6}, m.Throughput); diff != "" || m.BytesPerSecond != 3e6 || m.RecordsPerSecond != 5 || m.LagSeconds == nil || *m.LagSeconds != 90 {
		t.Errorf("%s%+v", diff, m)
	}
	if len(s.Events) != 2 || s.Events[0].Text != "second" {
		t.Errorf("events %v", s.Events)
	}
	for _, key := range []string{`"lagSeconds": 90`, `"bytesPerSecond": 3000000`, `"refused": {`} {
		if !strings.Contains(text, key) {
			t.Errorf("no %s in %s", key, text)
		}
	}
}

// TestKeepsLittle: samples and events do not grow for ever, those of a mirror that is gone go.
func TestKeepsLittle(t *testing.T) {
	b := New(nil)
	for i := range 1000 {
		b.sample([]mirror.Description{standing("a", noon.Add(time.Duration(i)*time.Second))}, nil, noon)
		b.Event(fmt.Sprint("event ", i))
	}
	if s := b.Now(); len(s.Mirrors[0].Throughput) != samples || len(s.Events) != events || s.Events[0].Text != "event 999" {
		t.Errorf("%d samples, %d events, the newest %v", len(s.Mirrors[0].Throughput), len(s.Events), s.Events[0])
	}
	b.sample(nil, nil, noon)
	if len(b.history) != 0 {
		t.Errorf("kept %v", b.history)
	}
}

// TestLagUnknown: where nothing was copied yet, how old the newest record is cannot be said.
func TestLagUnknown(t *testing.T) {
	d := broken("dr", noon)
	d.Status.Worst[2].NewestRecord = nil
	if s := board(nil, d).Now(); s.Mirrors[0].LagSeconds != nil {
		t.Errorf("%v", *s.Mirrors[0].LagSeconds)
	}
	if s := board(nil, standing("dr", noon)).Now(); s.Mirrors[0].LagSeconds == nil || *s.Mirrors[0].LagSeconds != 0 {
		t.Error("nothing is behind, and that is not said")
	}
}

// TestPage: what a person looks for stands there, whatever names and reasons hold.
func TestPage(t *testing.T) {
	b := board(nil, broken("dr", noon), standing("other", noon))
	b.sample([]mirror.Description{broken("dr", noon.Add(2*time.Second)), standing("other", noon)}, nil, noon)
	b.Event("orders-1 failed: <script>alert(1)</script>")
	code, header, text := get(t, b, "/")
	if code != 200 || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") || header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", code, header)
	}
	for _, want := range []string{
		`<p class="badge failed">failed</p>`, "2 mirrors, 4 topics, 8 partitions, 1,500 records behind, 0 B/s", "A → B", "1 FAILED, 2 MIRRORING", "7 skipped",
		`<th>orders-1<td class="state">FAILED<td class="reason">no &lt;right&gt; &amp; &#34;so&#34;<td class="next">again in 4.0 s`,
		`<th>orders-2<td class="state">FAILED<td class="reason">corrupt<td class="next">needs recover`, `<th>audit<td class="state">refused`,
		`<th>orders-0<td class="n">1,500<td class="n">90 s<td class="n">1,000 of 2,500`, "&lt;script&gt;alert(1)", "<polyline points=",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, not := range []string{"<script", "http://", "https://", "url("} {
		if strings.Contains(text+string(style), not) {
			t.Errorf("%q on the page", not)
		}
	}
	if _, _, text := get(t, board(nil), "/"); !strings.Contains(text, "no mirror is defined") || !strings.Contains(text, "none since the start") {
		t.Errorf("of nothing:\n%s", text)
	}
	if _, _, text := get(t, board(errors.New("no answer")), "/"); !strings.Contains(text, "shown as it was: no answer") {
		t.Errorf("of an error:\n%s", text)
	}
}

// TestPageOfSame: what is the same in many places is one line.
func TestPageOfSame(t *testing.T) {
	d := broken("dr", noon)
	for p := range int32(30) {
		one := d.Status.Worst[1]
		one.Partition.Partition = 10 + p
		d.Status.Worst = append(d.Status.Worst, one)
	}
	_, _, text := get(t, board(nil, d), "/")
	if want := `<th>orders-2, orders-10, orders-11, orders-12 and 27 more<td class="state">FAILED<td class="reason">corrupt`; !strings.Contains(text, want) || strings.Count(text, `class="reason"`) != 3 {
		t.Errorf("no %q in\n%s", want, text)
	}
}

// TestPageOfMany: a thousand problems are a hundred lines, and a number.
func TestPageOfMany(t *testing.T) {
	var all []mirror.Description
	for i := range 20 {
		d := standing(fmt.Sprint("m", i), noon)
		for p := range int32(100) {
			d.Status.Worst = append(d.Status.Worst, mirror.PartitionStatus{Partition: cluster.Partition{Topic: "t", Partition: p}, State: coordinator.StateFailed, Lag: int64(100*i) + int64(p), Reason: fmt.Sprint("no ", p)})
		}
		all = append(all, d)
	}
	_, _, text := get(t, board(nil, all...), "/")
	if n := strings.Count(text, `class="reason"`); n != problemRows || !strings.Contains(text, "and 1900 more") {
		t.Errorf("%d lines", n)
	}
	if at := strings.Index(text, "Farthest behind"); strings.Count(text[at:], "<tr><td>") != behindRows || !strings.Contains(text[at:], `<td>m19<th>t-99<td class="n">1,999`) {
		t.Errorf("behind:\n%s", text[at:])
	}
}

// TestHosts: a page of somebody else cannot read this one by a name of its own, nor is there anything else.
func TestHosts(t *testing.T) {
	h := board(nil).Handler("mirror1")
	for host, want := range map[string]int{"127.0.0.1:8090": 200, "localhost:8090": 200, "[::1]:8090": 200, "mirror1": 200, "evil.example:8090": 421, "": 421} {
		r := httptest.NewRequest(http.MethodGet, "/status", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
	}
	for path, want := range map[string]int{"/style.css": 200, "/other": 404} {
		if code, _, _ := get(t, board(nil), path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/status", nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 405 {
		t.Errorf("a POST: %d", w.Code)
	}
}

// TestRun: it looks at once and then every two seconds, and ends with its context, also in the
// middle of a look.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		var hang atomic.Bool
		b := New(func(ctx context.Context) ([]mirror.Description, error) {
			if looks.Add(1); hang.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []mirror.Description{standing("dr", time.Now())}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { b.Run(ctx); close(ended) }()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if looks.Load() != 3 || b.Now().Health != "ok" {
			t.Errorf("%d looks, %+v", looks.Load(), b.Now())
		}
		hang.Store(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		cancel()
		<-ended
		if s := b.Now(); s.Error != "" || s.Health != "ok" {
			t.Errorf("the end is shown as an error: %+v", s)
		}
	})
}
